"""Runs benchmarks: `python -m benchmarks NAME... [--rounds N] [--json FILE]`; all without a name.

Prints the conditions and each table in Markdown. See docs/benchmarks.md.
"""
from __future__ import annotations

import argparse
import importlib.util
import os
import signal
import sys

from benchmarks import charts, conditions, interleaving, links, registry, rows


class _Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
  """Shows the description unchanged, and the default of each option."""


def parse(arguments):
  """Parses the command line."""
  parser = argparse.ArgumentParser(
    prog="python -m benchmarks", description=__doc__, formatter_class=_Help)
  parser.add_argument("names", nargs="*", metavar="NAME",
                      help="of %s; all by default" % ", ".join(registry.names()))
  parser.add_argument("--rounds", type=int, default=5, help="turns of each system")
  parser.add_argument("--seconds", type=float, default=3.0, help="that each turn is measured")
  parser.add_argument("--settle", type=float, default=1.0, help="seconds of a turn before that")
  parser.add_argument("--minibatches", type=int, default=240,
                      help="after which losses are compared; 0: they are not")
  parser.add_argument("--seeds", type=int, default=3, help="of the classic script, for its spread")
  parser.add_argument("--only", default="", help="only systems with this in their names, and the "
                      "one that they are compared with")
  parser.add_argument("--json", default="", help="a file for the rows, a line of JSON each")
  parser.add_argument("--chart", default="", help="a file for the chart, .png")
  parser.add_argument("--legacy_python", default="",
                      help="a Python 3.7 with TensorFlow 1.15, for the classic script on it")
  parser.add_argument("--mnist", default="", help="the folder of MNIST's four IDX files")
  parser.add_argument("--quick", action="store_true",
                      help="small: fails unless every kind of system runs and its row is complete; "
                      "its figures mean nothing, and numbers above are ignored")
  args = parser.parse_args(arguments)
  if args.quick:
    args.rounds, args.seconds, args.settle, args.minibatches, args.seeds = 1, 1.0, 0.3, 16, 2
  check(parser, args)
  return args


def check(parser, args):
  """Refuses requests that would fail only at the end of the run."""
  unknown = [name for name in args.names if name not in registry.names()]
  if unknown:
    parser.error("there is no benchmark %s: %s" % (unknown[0], ", ".join(registry.names())))
  if args.rounds < 1 or args.seeds < 1 or args.minibatches < 0:
    parser.error("--rounds and --seeds must be at least 1, --minibatches at least 0")
  if args.seconds <= 0 or args.settle < 0:
    parser.error("--seconds must be above 0, --settle at least 0")
  if args.seconds + args.settle > interleaving.LONGEST_TURN:
    parser.error("--seconds and --settle together must be at most %g: the others stand meanwhile, "
                 "and would lose their connections. Give more --rounds" % interleaving.LONGEST_TURN)
  for option in ("json", "chart"):
    folder = os.path.dirname(os.path.abspath(getattr(args, option)))
    if getattr(args, option) and not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
      parser.error("--%s=%s: %s is no folder that can be written to" % (
        option, getattr(args, option), folder))
  if args.chart and not args.chart.endswith(".png"):
    parser.error("--chart=%s: its name must end in .png" % args.chart)
  if args.chart and importlib.util.find_spec("matplotlib") is None:
    parser.error('--chart needs matplotlib: pip install "tf1ps[bench]"')
  if args.mnist and not os.path.isdir(args.mnist):
    parser.error("--mnist=%s is no folder" % args.mnist)
  if args.only and not any(args.only in line for line in registry.lines(args.names)):
    parser.error("--only=%s: no system of these benchmarks has it in its name" % args.only)


def leave(number, frame):
  """Ends the jobs; a second signal does not interrupt this."""
  signal.signal(number, signal.SIG_IGN)
  sys.exit(128 + number)


def main(arguments=None) -> int:
  """Runs the benchmarks that the command line asks for; returns the exit code."""
  args = parse(arguments)
  signal.signal(signal.SIGTERM, leave)
  wanted = args.names or registry.names(quick=args.quick)
  args.legacy_python = conditions.legacy_python(args.legacy_python)
  found, failed = [], []
  run = conditions.of(args)
  print(conditions.text(run))
  for name in wanted:
    print("\n## %s\n" % name, flush=True)
    try:
      for number, made in enumerate(registry.run(name, args), 1):
        made = rows.of_run(made, name, number, run)
        print("\n".join([rows.table(made), ""] + rows.extras(made)), flush=True)
        found += made
        if args.json:
          rows.write(args.json, found)  # after each table, so that no rows are lost
    except (links.LinkError, interleaving.Skipped) as error:
      interleaving.say("%s is skipped: %s" % (name, error))
      print("skipped: %s" % error)
    except RuntimeError as error:
      interleaving.say("%s failed: %s" % (name, error))
      failed.append(name)
    except KeyboardInterrupt:
      interleaving.say("%s was interrupted: what it had measured of the last table is lost%s" % (
        name, ", the tables before are in " + args.json if args.json and found else ""))
      return 128 + signal.SIGINT
  if args.chart:
    charts.draw(args.chart, found, conditions.text(run))
  if args.quick:
    wrong = rows.incomplete(found) + interleaving.left_out
    for line in wrong:
      interleaving.say(line)
    failed += wrong
  return 1 if failed else 0


if __name__ == "__main__":
  sys.exit(main())
