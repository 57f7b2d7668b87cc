"""`python -m tools.chaos`: makes a run, or checks the history of one again."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile

from tools.chaos import report, worlds
from tools.chaos.plan import WAIT_LIMIT
from tools.chaos.run import RunOptions, run

_FAULTS = ("kill", "stop", "cut", "slow", "disk")


def main(argv=None) -> int:
  """Returns 0 if every validator holds."""
  parser = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
  commands = parser.add_subparsers(dest="command", required=True)
  make = commands.add_parser("run", help="makes a run and checks its history")
  make.add_argument("--seconds", type=float, default=60.0, help="how long faults are injected")
  make.add_argument("--seed", type=int, help="by default a new one, which the report prints")
  make.add_argument("--kind", choices=["tf1ps", "stock"], default="tf1ps",
                    help="stock: TensorFlow's own classes, which must fail")
  make.add_argument("--modes", default="async,sync", help="the jobs of the run")
  make.add_argument("--breaks", default="",
                    help="what is broken on purpose: token, range, checkpoint")
  make.add_argument("--faults", help="the faults to inject, by default all: " + ",".join(_FAULTS))
  make.add_argument("--world", choices=[name for name in worlds.WORLDS if name != "no_rename"],
                    help="what the tasks share; by default the seed draws it of %s" % ", ".join(
                      worlds.DRAWN))
  make.add_argument("--wait_limit", type=float, default=WAIT_LIMIT,
                    help="seconds for the job to recover from an injection")
  make.add_argument("--history", help="the file; by default in a new directory")
  check = commands.add_parser("check", help="checks a saved history")
  check.add_argument("history")
  arguments = parser.parse_args(argv)
  if arguments.command == "run":
    _run(arguments)
  return report.print_report(arguments.history)


def _run(arguments):
  if arguments.seed is None:
    arguments.seed = random.SystemRandom().randrange(10 ** 6)
  if not arguments.history:
    arguments.history = os.path.join(tempfile.mkdtemp(prefix="chaos-history-"), "history.jsonl")
  run(RunOptions(
    arguments.seconds, arguments.seed, arguments.history,
    os.path.splitext(arguments.history)[0] + "-logs", _names(arguments.modes), arguments.kind,
    _names(arguments.breaks), arguments.wait_limit,
    None if arguments.faults is None else _names(arguments.faults),
    arguments.world or worlds.draw(arguments.seed)))


def _names(text):
  return [name for name in text.split(",") if name]


if __name__ == "__main__":
  sys.exit(main())
