"""What the table of legacy programs says of a job, from what its tasks printed and left."""
from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import legacy_programs, systems

ALL = ("ps 0", "worker 0", "worker 1")


def outcome(name, first, second, saved, codes=(0, 0, 0), ps=""):
  said = dict(zip(ALL, (ps, first, second)))
  made = legacy_programs.Outcome(dict(zip(ALL, codes)), said, saved)
  return legacy_programs.verdict(legacy_programs.PROGRAMS[name], made)


def steps(local, last):
  return "worker: %d local steps, global step %d\n" % (local, last)


@pytest.mark.parametrize("name, first, second, saved, codes, said", [
  ("supervisor_async", steps(120, 200), steps(81, 201), 201, (0, 0, 0), "ends"),
  ("supervisor_async", steps(120, 200), steps(81, 201), 0, (None, 0, 0),
   "ps 0 never ends; the last checkpoint has step 0 of 201"),
  ("supervisor_async", "", "", None, (0, 1, 0), "worker 0: exit 1"),
  ("supervisor_async", "Traceback\ntensorflow.errors.AbortedError: it has gone", "", None,
   (None, 1, None), "worker 0: AbortedError: it has gone; ps 0, worker 1 never end"),
  ("supervisor_sync", steps(100, 100), steps(100, 100), 100, (0, 0, 0), "ends"),
  ("supervisor_sync", steps(130, 100), steps(71, 100), 100, (None, 0, None),
   "ps 0, worker 1 never end; worker 1 is in at most 71 of 100 updates; "
   "130 gradients of worker 0 for 100 updates"),
  ("plain_session", steps(100, 200), steps(100, 190), None, (0, 0, 0), "ends"),
  ("queue_runners", steps(80, 150) + "worker 0: 800 rows,", steps(80, 160) + "790 rows,", 160,
   (0, 0, 0), "ends; worker 1 read 790 of 800 rows"),
  ("slim_train", "", "", 150, (0, 0, 0), "ends"),
])
def test_a_cell_of_the_table(name, first, second, saved, codes, said):
  assert outcome(name, first, second, saved, codes) == said


@pytest.mark.parametrize("evaluated, said", [
  (150, "ends; the last evaluation is of step 150 of 200"),
  (201, "ends"),  # step 202 was saved after it had left
])
def test_an_evaluator_leaves_at_a_checkpoint_of_all_steps(evaluated, said):
  made = legacy_programs.Outcome(
    dict.fromkeys([*ALL, "eval 0"], 0),
    {"worker 0": steps(108, 200), "worker 1": steps(94, 201),
     "eval 0": "evaluated step %d: x" % evaluated}, 202)
  assert legacy_programs.verdict(legacy_programs.PROGRAMS["evaluator"], made) == said


def test_an_estimator():
  program = legacy_programs.PROGRAMS["flats"]
  names = list(legacy_programs.arguments(program, "/tmp"))
  said = dict.fromkeys(names, "")
  said["evaluator 0"] = "Saving dict for global step 400: accuracy = 0.7"
  codes = dict(dict.fromkeys(names, 0), **{"ps 0": None})
  assert legacy_programs.verdict(program, legacy_programs.Outcome(codes, said, 600)) == (
    "ps 0 never ends; the last evaluation is of step 400 of 600")
  environments = legacy_programs.environments(program, names)
  config = json.loads(environments["worker 1"]["TF_CONFIG"])
  assert config["task"] == {"type": "worker", "index": 1}
  assert [len(config["cluster"][job]) for job in ("chief", "worker", "ps")] == [1, 2, 1]
  assert "evaluator" not in config["cluster"]


def test_the_lines_that_are_changed():
  source = ('"""import tensorflow as tf"""\nimport tensorflow as tf\n'
            "from tensorflow.contrib import slim\nimport tensorflow.contrib.slim as other\n")
  assert legacy_programs.with_our_imports(source) == (
    '"""import tensorflow as tf"""\nimport tf1ps.v1 as tf\n'
    "from tf1ps.v1.contrib import slim\nimport tf1ps.v1.contrib.slim as other\n")
  assert legacy_programs.with_stock_imports(source).splitlines()[1] == (
    "import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()")


def test_every_program_of_the_folder_is_known_and_starts_with_the_stock_line():
  for program in legacy_programs.PROGRAMS.values():
    with open(legacy_programs.path_of(program)) as file:
      lines = file.read().splitlines()
    assert "import tensorflow as tf" in lines and 40 <= len(lines) <= 160, program.name


@pytest.mark.slow
def test_the_table_of_one_program():
  done = subprocess.run(
    [sys.executable, "-m", "benchmarks.legacy_programs", "supervisor_sync", "--ways=run",
     "--limit=120"],
    cwd=systems.ROOT, stdout=subprocess.PIPE, check=True, universal_newlines=True)
  title, _, row = done.stdout.splitlines()
  assert title.startswith("| program | tf1ps-run, ") and row == "| supervisor_sync | ends |"
