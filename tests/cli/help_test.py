from __future__ import annotations

import re

import pytest

from tests.cli import commands
from tf1ps.training import options

OF_LINE = ["block_at", "block_until", "build_until", "evaluate_until", "extra_variable", "fail_in",
           "hang_in_initialiser", "leave_until", "nan_at", "slow_index", "step_seconds",
           "stop_when"]


def help_of(start, name, *argv):
  code, lines = commands.run(start, name, *argv)
  assert code == 0, lines
  return lines


def listed(lines):
  """The flags in the order of the text."""
  return [match.group(1) for match in (
    re.match(r"  --(?:\[no\])?(\w+)", line) for line in lines) if match]


@pytest.mark.parametrize("name", commands.PROGRAMS)
def test_every_flag_of_ours_and_no_other(start, name):
  lines = help_of(start, name, "--help=all")
  assert sorted(listed(lines)) == sorted(commands.names_of(name))
  assert help_of(start, name, "--helpfull") == lines
  assert lines[0].startswith(name + ": ")
  last = "With a program, --help lists the program's own flags as well."
  assert (lines[-1] == last) == (name in commands.OF_PROGRAMS)
  assert max(map(len, lines)) <= 88


@pytest.mark.parametrize("argv", [
    ["--help=all", commands.LINE], [commands.LINE, "--help=all"],
    ["--helpfull", commands.LINE, "--steps=0"]])
def test_the_programs_own_flags_stand_beside_ours(start, argv):
  lines = help_of(start, "tf1ps-worker", *argv)
  ours = commands.names_of("tf1ps-worker")
  position = lines.index("Of the program line:")
  assert sorted(listed(lines[:position])) == sorted(ours)
  assert listed(lines[position:]) == OF_LINE
  assert lines[position + 1] == (
    "  --block_at=N                This worker's step that never ends; -1: none. [-1]")
  assert "lists the program's own flags" not in lines[-1]


@pytest.mark.parametrize("name", commands.PROGRAMS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_first_level_has_the_flags_of_a_first_job(start, name, flag):
  lines, names = help_of(start, name, flag), commands.names_of(name)
  firsts = [each for each in names if options.BY_NAME[each].first]
  assert sorted(listed(lines)) == sorted(firsts if len(names) > 20 else names)
  assert (lines[-1] == "--help=all lists all %d flags." % len(names)) == (len(names) > 20)
  if name == "tf1ps-local":
    assert 18 <= len(firsts) <= 22


def test_a_program_has_its_flags_on_the_first_level_as_well(start):
  lines = help_of(start, "tf1ps-local", commands.LINE, "--help")
  assert listed(lines[lines.index("Of the program line:"):]) == OF_LINE


def test_how_flags_are_shown(start):
  lines = help_of(start, "tf1ps-worker", "--help=all")
  position = lines.index("Limits, in seconds:")
  assert lines[position:position + 4] == [
    "Limits, in seconds:",
    "  --start_timeout=X           How long to wait for the other tasks at the start. [60.0]",
    "  --heartbeat_timeout=X[:X]   How long a task may be silent before it counts as lost.",
    "                              The second number of 30:300 is how long a ps, or with"]
  position = lines.index("  --shard=files|records|dynamic|none")
  assert lines[position + 1].startswith(" " * 30 + "How data are divided among the workers")
  assert any(line.startswith("  --[no]sync_replicas[=N]     All workers make") for line in lines)
  position = lines.index("  --gpu_memory=auto|none|grow|all|X")
  assert lines[position + 1].startswith(" " * 30 + "The memory that a task takes of each GPU")
  first = "  --checkpoint_dir=DIR        The directory of the job's checkpoints. The chief restores"
  assert first in lines
  position = lines.index("  --on_uneven=stop_all|pad|shrink|repeat")
  assert lines[position + 1].startswith(" " * 30 + "What happens when the data of one worker")
  groups = [line for line in lines[1:] if re.match(r"\w.*:$", line)]
  assert groups == [
    "The program:", "The number of tasks:", "The cluster (or TF_CONFIG in the environment):",
    "The job:", "Links:", "Replication:", "Training:", "Checkpoints:", "Transfer:",
    "Limits, in seconds:", "Threads and GPUs:", "Output:"]


def test_help_with_a_program_that_is_not_there(start):
  assert commands.run(start, "tf1ps-local", "--help", "--program=/no/such.py") == (
    1, ["tf1ps-local: the program /no/such.py does not exist"])
