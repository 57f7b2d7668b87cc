from __future__ import annotations

import json

import pytest

from tests import harness
from tests.cli import commands


@pytest.mark.parametrize("name, argv", [
    ("tf1ps-ps", ["--start_timeout=0.1"]),
    ("tf1ps-worker", ["--program=tests.programs.line", "--steps=1", "--start_timeout=0.3"]),
    ("tf1ps-evaluator", ["--program=tests.programs.line", "--checkpoint_dir=/no",
                         "--start_timeout=0.1"])])
def test_a_launched_task_imports_nothing_of_ours_any_more(start, name, argv):
  """The tests' tasks are forked from a process that has imported what the launcher's has."""
  if name != "tf1ps-evaluator":
    argv = argv + ["--ps_hosts=" + harness.addresses(1)[0],
                   "--worker_hosts=" + harness.addresses(1)[0]]
  lines = commands.call(start, commands.show_imports, name, argv)
  assert any("exit code 1" in line for line in lines), lines
  late, = [json.loads(line[5:]) for line in lines if line.startswith("new: ")]
  assert [module for module in late if module.startswith("tf1ps")] == []


def test_it_leaves_tensorflows_mode_as_it_is(start):
  task = start("preloaded", commands.show_mode)
  assert task.wait() == 0 and task.last_line == "v1 imported: False", task.output
