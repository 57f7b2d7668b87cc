"""The legacy trainer in its processes, and what the same file does with stock imports."""
from __future__ import annotations

import pathlib
import re
import signal

import pytest

from tests import file_tasks, harness

FILE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "legacy_trainer.py"
OURS, STOCK = "import tf1ps as dist", "from tensorflow.compat.v1 import train as dist"


def start_all(start, path, num_ps, num_workers, steps):
  """Starts the trainer's tasks; returns them by name."""
  hosts = harness.addresses(num_ps + num_workers)
  common = ["--ps_hosts=" + ",".join(hosts[:num_ps]),
            "--worker_hosts=" + ",".join(hosts[num_ps:]), "--steps=%d" % steps]
  tasks = {}
  for job, count in (("ps", num_ps), ("worker", num_workers)):
    for index in range(count):
      name = "%s %d" % (job, index)
      tasks[name] = start(name, file_tasks.run_file, str(path), "--job_name=" + job,
                          "--task_index=%d" % index, *common)
  return tasks


def losses(*tasks):
  """What all of them have printed, by the global step: who came late begins with a good model."""
  found = re.findall(r"global step (\d+), loss (\d+\.\d+)", "\n".join(t.output for t in tasks))
  return [loss for _, loss in sorted((int(step), float(loss)) for step, loss in found)]


@pytest.mark.slow
def test_four_processes_end_by_themselves(start):
  tasks = start_all(start, FILE, num_ps=2, num_workers=2, steps=400)
  for task in tasks.values():
    assert task.wait() == 0, task.output
  found = losses(tasks["worker 0"], tasks["worker 1"])
  assert found[-1] < found[0] / 5, found


@pytest.mark.slow
def test_with_stock_imports_the_ps_must_be_killed(start, tmp_path):
  source = FILE.read_text()
  assert source.count(OURS) == 1
  stock = tmp_path / "stock_trainer.py"
  stock.write_text(source.replace(OURS, STOCK))
  tasks = start_all(start, stock, num_ps=1, num_workers=1, steps=300)
  assert tasks["worker 0"].wait() == 0, tasks["worker 0"].output
  ps = tasks["ps 0"]
  ps.signal(signal.SIGINT)
  with pytest.raises(AssertionError, match="has not ended"):
    ps.wait(1.5)
  assert ps.kill() == -signal.SIGKILL


def test_only_the_import_says_tf1ps():
  code = FILE.read_text().split('"""', 2)[2]
  code = re.sub(r"\ndef run_all\(.*?(?=\ndef )", "", code, flags=re.DOTALL)  # for this machine
  assert [line for line in code.splitlines() if "tf1ps" in line] == [OURS]
