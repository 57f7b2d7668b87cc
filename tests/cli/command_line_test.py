from __future__ import annotations

import pytest

from tf1ps.cli import UsageError, command_line

pytestmark = pytest.mark.any_tensorflow


@pytest.mark.parametrize("argv, named", [
  ([], []),
  (["p.py"], ["--program=p.py"]),
  (["p.py", "--steps=3"], ["--program=p.py", "--steps=3"]),
  (["--steps=3", "p.py", "-batch_size", "8"],
   ["--program=p.py", "--steps=3", "-batch_size", "8"]),
  (["--steps", "3", "a.module"], ["--program=a.module", "--steps", "3"]),
  (["--sync_replicas", "p.py", "--nosync_replicas"],
   ["--program=p.py", "--sync_replicas", "--nosync_replicas"]),
  (["--nosync_replicas", "p.py"], ["--program=p.py", "--nosync_replicas"]),
  (["--help", "p.py"], ["--program=p.py", "--help"]),
  (["--mine=1", "p.py"], ["--program=p.py", "--mine=1"]),
  (["p.py", "--mine", "1"], ["--program=p.py", "--mine", "1"]),
  (["--mine", "1", "p.py"], ["--program=p.py", "--mine", "1"]),  # the value of a flag not of ours
  (["--mine", "--yours", "1"], ["--mine", "--yours", "1"]),
  (["--program", "p.py", "--steps=1"], ["--program", "p.py", "--steps=1"]),
  (["--program=p.py", "--program=q.py"], ["--program=p.py", "--program=q.py"]),
  (["--steps=3", "--", "p.py"], ["--steps=3", "--", "p.py"])])
def test_the_program_among_the_arguments(argv, named):
  assert command_line.name_program(argv, "worker") == named


@pytest.mark.parametrize("argv, text", [
  (["a.py", "b"], "'a.py' and 'b' both name a program: leave one out"),
  (["a.py", "--program=b"], "'a.py' and --program=b both name a program: leave one out"),
  (["--program", "b", "a.py"], "'a.py' and --program=b both name a program: leave one out")])
def test_two_programs_are_refused(argv, text):
  with pytest.raises(UsageError) as raised:
    command_line.name_program(argv, "local")
  assert str(raised.value) == text
