from __future__ import annotations

from tests.v1 import flags_tasks


def test_a_program_may_define_absls_flags(start):
  task = start("flags", flags_tasks.own_flags)
  assert task.wait() == 0, task.output
  assert "['train.py'] here 4 loud True 7" in task.lines and "said 1" in task.output


def test_a_flag_of_its_own_is_defined_once(start):
  task = start("flags", flags_tasks.twice)
  assert task.wait() == 0 and "DuplicateFlagError" in task.lines, task.output
