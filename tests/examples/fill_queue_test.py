"""A client fills a queue, two train on it; which is there first does not matter."""
from __future__ import annotations

import pathlib
import re

import pytest

from tests import file_tasks, harness

FILE = str(pathlib.Path(__file__).resolve().parents[2] / "examples" / "fill_queue.py")


@pytest.mark.parametrize("filler_is_first", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_each_example_is_trained_on_once_and_all_end(start, filler_is_first):
  ps, *trainers = harness.addresses(3)

  def begin(role, *arguments):
    return start(role, file_tasks.run_file, FILE, "--role=" + role, "--ps=" + ps,
                 "--trainers=" + ",".join(trainers), *arguments)

  tasks = [begin("ps")]
  if filler_is_first:  # 150 fit into the queue
    tasks.append(begin("filler", "--examples=150"))
    tasks[1].wait_for("filled in 150 examples")
  tasks += [begin("trainer", "--index=%d" % index) for index in range(2)]
  if not filler_is_first:
    tasks.append(begin("filler", "--examples=2010"))
  for task in tasks:
    assert task.wait() == 0, task.output
  said = [re.search(r"trainer \d: (\d+) examples, last loss (\S+)", task.output) for task in tasks]
  found = [line.groups() for line in said if line]
  assert sum(int(count) for count, _ in found) == (150 if filler_is_first else 2010)
  if not filler_is_first:  # whoever had the end of them; the other one may have had few, early
    assert min(float(loss) for count, loss in found if count != "0") < 0.01
