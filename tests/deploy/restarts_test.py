"""What the Slurm script does on each exit code of a task."""
from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tests import harness
from tests.deploy import rendered
from tf1ps.deploy import render

pytestmark = pytest.mark.any_tensorflow
PS, CHIEF, WORKER = 0, 2, 3  # ranks of the job below
_TASK = """#!/bin/bash
echo "$@" >>flags
read -r code <codes; sed -i 1d codes
if [ "$code" = wait ]; then
  trap 'exit 143' TERM
  touch waits
  while :; do read -r -t 1 _ <>fifo || true; done
fi
if [ "$code" -gt 128 ]; then kill -$((code - 128)) $$; fi
exit "$code"
"""


@pytest.fixture
def run(tmp_path):
  """Runs the script as one rank, whose starts end with these codes; returns the process."""
  file, = render(rendered.request("slurm", flags=("--text=a  b",)))
  (tmp_path / file.name).write_text(file.text)
  programs = tmp_path / "bin"
  programs.mkdir()
  # A srun of one task; its step is a session, to which a test sends signals.
  for name, text in (("tf1ps-task", _TASK), ("sleep", "#!/bin/sh\n"), ("srun", """#!/bin/bash
while [[ $1 == --* ]]; do shift; done
exec "$@"
""")):
    (programs / name).write_text(text)
    (programs / name).chmod(0o755)
  os.mkfifo(str(tmp_path / "fifo"))

  def run_one(rank, *codes):
    (tmp_path / "codes").write_text("".join("%s\n" % code for code in codes))
    env = dict(os.environ, PATH="%s:%s" % (programs, os.environ["PATH"]), SLURM_PROCID=str(rank),
               SLURM_JOB_ID="1234")
    return subprocess.Popen(["bash", file.name], cwd=str(tmp_path), env=env,
                            start_new_session=True, stderr=subprocess.PIPE, universal_newlines=True)

  return run_one


@pytest.mark.parametrize("rank, codes, last, starts", [
  (WORKER, [0], 0, 1),
  (WORKER, [1, 137, 0], 0, 3),  # done after two restarts; or done before the second
  (WORKER, [1] * 9, 1, 6),
  (PS, [139, 0], 0, 2),
  (PS, [1, 0], 0, 2),
  (CHIEF, [0], 0, 1),
  (CHIEF, [1, 0], 1, 1),  # it has said why the job failed
  (CHIEF, [137, 0], 0, 2),
  (CHIEF, [137, 1, 0], 1, 2),
])
def test_a_task_is_started_again_by_its_code_and_its_role(run, tmp_path, rank, codes, last, starts):
  process = run(rank, *codes)
  _, errors = process.communicate(timeout=harness.LIMIT)
  assert process.returncode == last, errors
  flags = (tmp_path / "flags").read_text().splitlines()
  assert len(flags) == starts
  assert set(flags) == {"--port=22040 --cluster_resolver=slurm --num_ps=2 "
                        "--program=tf1ps_examples.digits --text=a  b"}
  assert errors.count(" restart ") == starts - 1


@pytest.mark.parametrize("rank, last", [(PS, 0), (CHIEF, 143), (WORKER, 0)])
def test_after_a_signal_to_the_step_only_the_code_of_the_chief_counts(run, tmp_path, rank, last):
  process = run(rank, "wait", 0)
  harness.wait_until((tmp_path / "waits").exists)
  os.killpg(process.pid, signal.SIGTERM)  # Slurm's goes to every process of a task
  _, errors = process.communicate(timeout=harness.LIMIT)
  assert process.returncode == last, errors
  assert len((tmp_path / "flags").read_text().splitlines()) == 1
