"""Legacy programs, by tf1ps-run and with the one import: all tasks end, and nothing is lost."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from benchmarks import legacy_programs
from tests.legacy import corpus

QUICK = [("supervisor_async", "run"), ("supervisor_sync", "import")]


def marks(name, way):
  """The runner and the import have the same drop-ins: on TensorFlow 1.15, once each."""
  if (name, way) in QUICK:
    return []
  found = [pytest.mark.slow] + [pytest.mark.any_tensorflow] * (way == "import")
  if legacy_programs.PROGRAMS[name].only_newer:
    found.append(pytest.mark.skipif(
      tf.__version__.startswith("1."), reason="it has these parts itself"))
  return found


@pytest.mark.parametrize("name, way", [
  pytest.param(name, way, marks=marks(name, way))
  for name in legacy_programs.PROGRAMS for way in ("run", "import")])
def test_all_tasks_end_by_themselves_and_nothing_is_lost(start, tmp_path, name, way):
  job = corpus.Job(start, name, way, tmp_path)
  outcome = job.end()
  assert set(outcome.codes.values()) == {0}, corpus.told(outcome)
  assert not legacy_programs.losses(job.program, outcome), corpus.told(outcome)


@pytest.mark.job
@pytest.mark.slow
def test_a_killed_chief_comes_back_and_the_job_ends(start, tmp_path):
  job = corpus.Job(start, "supervisor_async", "run", tmp_path,
                   "--train_steps=3000", "--save_secs=1")
  chief = job.tasks["worker 0"]
  chief.wait_for("training step 200 done")
  chief.kill()
  seen = int(chief.last_line.split("global step: ")[1].split(")")[0])
  again = job.start("worker 0")
  # The weights live on the ps: no step that was made is made again.
  line = again.wait_for("training step 20 done")
  assert int(line.split("global step: ")[1].split(")")[0]) >= seen + 20, line
  outcome = job.end()
  assert set(outcome.codes.values()) == {0}, corpus.told(outcome)
  assert outcome.saved >= 3000, corpus.told(outcome)
