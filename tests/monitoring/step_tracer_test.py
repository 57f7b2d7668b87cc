"""Traces of jobs in this process: a ps, a worker, and each shape of its steps."""
from __future__ import annotations

import json
import logging
import re

import pytest

from tests import docs_test
from tests.monitoring import traced_runs
from tests.training import local_job


def traces(directory):
  """{name: its rows} of the Chrome traces in a directory, each of which keeps the rules."""
  return {path.name: traced_runs.check(json.loads(path.read_text()))
          for path in directory.glob("trace_*.json")}


@pytest.mark.slow
@pytest.mark.parametrize("options, labels", [
  ({}, ["step 20", "step 21", "step 22"]),
  (dict(sync_replicas=True), ["step 20", "step 21", "step 22"]),
  (dict(replication="in_graph"), ["step 20", "step 21", "step 22"]),
  (dict(overlap="prefetch"), ["step 20", "step 21", "step 22"])])
def test_each_traced_step_has_the_operations_of_all_tasks(tmp_path, options, labels):
  local_job.train(steps=40, batch_size=4, trace_steps="20:23", checkpoint_dir=str(tmp_path),
                  **options)
  (name, rows), = traces(tmp_path).items()
  assert name == "trace_worker_0_steps_20_23.json"
  assert [event["name"] for event in rows["worker 0, runs"]] == labels
  assert {"worker 0, CPU:0", "ps 0, CPU:0", "worker 0, tensors", "ps 0, tensors"} <= set(rows)
  assert {event["args"]["step"] for event in rows["ps 0, CPU:0"]} == set(labels)
  text = (tmp_path / "trace_worker_0_steps_20_23.txt").read_text()
  assert re.match(r"worker 0, steps 20 to 22: 3 traced runs of [\d.]+ ms", text)
  assert re.search(r"\d  the next batch: \S+ on worker 0\n", text), text
  assert re.search(r"longest transfers:\n +[\d.]+  .*, (ps|worker) 0 to (ps|worker) 0\n", text)


@pytest.mark.slow
def test_a_run_of_several_steps_and_the_steps_of_threads(tmp_path):
  """Whole runs are traced, and the threads' as long as the loop's are."""
  local_job.train(steps=400, batch_size=4, epochs=100, trace_steps="100:101",
                  checkpoint_dir=str(tmp_path), steps_per_execution=4, overlap=2)
  (_, rows), = traces(tmp_path).items()
  assert re.match(r"steps \d+ to \d+|step 100$", rows["worker 0, runs"][0]["name"])
  assert "ps 0, CPU:0" in rows


@pytest.mark.slow
def test_a_job_that_ends_in_the_middle(tmp_path):
  local_job.train(steps=22, batch_size=4, trace_steps="20:30", checkpoint_dir=str(tmp_path))
  (_, rows), = traces(tmp_path).items()
  assert [event["name"] for event in rows["worker 0, runs"]] == ["step 20", "step 21"]


@pytest.mark.slow
def test_a_job_that_ends_before(tmp_path, caplog):
  with caplog.at_level(logging.WARNING, logger="tf1ps"):
    local_job.train(steps=10, batch_size=4, trace_steps="20:30", checkpoint_dir=str(tmp_path))
  assert "--trace_steps=20:30: nothing was traced, because this worker made 10 steps" in caplog.text
  assert traces(tmp_path) == {}


@pytest.mark.slow
def test_a_trace_that_cannot_be_written_ends_nothing(tmp_path, caplog):
  (tmp_path / "trace_worker_0_steps_5_6.json").mkdir()
  with caplog.at_level(logging.WARNING, logger="tf1ps"):
    outcome = local_job.train(
      steps=10, batch_size=4, trace_steps="5:6", checkpoint_dir=str(tmp_path))
  assert outcome.steps == 10
  assert re.search(r"the trace is lost, and this task goes on: .*steps_5_6", caplog.text)


def test_without_a_directory():
  with pytest.raises(ValueError, match="--trace_steps=5:6 needs --checkpoint_dir, the directory"):
    local_job.train(steps=10, trace_steps="5:6")


@pytest.mark.slow
def test_each_worker_of_the_documented_job_writes_its_own(start, tmp_path):
  (tmp_path / "examples").symlink_to(docs_test.ROOT / "examples")
  arguments, = [a for a in docs_test.of_program("docs/monitoring.md", "tf1ps-local")
                if "--trace_steps=100:105" in a]
  output = docs_test.launcher(start, arguments, tmp_path)
  found = traces(tmp_path / "traced")
  for index in range(2):
    rows = found.pop("trace_worker_%d_steps_100_105.json" % index)
    assert {"worker %d, CPU:0" % index, "ps 0, CPU:0"} <= set(rows)
    assert re.search(r"the trace of 5 runs is in traced/trace_worker_%d_steps_100_105.json \(open "
                     r"it at https://ui.perfetto.dev" % index, output), output
  assert not found
