"""Runs examples as their docstrings say, and compares their output with the docstrings.

    make examples                               all
    make examples ARGS="B13 two_clients book"   some: by number, by name, or a whole folder
    make examples ARGS=--table                  writes the tables in README.md, README.zh.md anew

It prints a line with the seconds of each example. For each failed example it then prints the
expected lines ("-") and the lines that came instead ("+"). The exit code is 1 if one failed.
"""
from __future__ import annotations

import argparse
import signal
import sys
import time

from . import checking, contents, docstrings


def main():
  """Checks the examples that were named, or all."""
  parser = argparse.ArgumentParser(
    prog="python -m tests.examples", description=__doc__,
    formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument("names", nargs="*", metavar="NAME")
  parser.add_argument("--limit", type=float, default=checking.LIMIT,
                      help="seconds for each example (default: %(default)g)")
  parser.add_argument("--table", action="store_true",
                      help="write the tables in examples/README.md and README.zh.md anew, and run "
                      "nothing")
  arguments = parser.parse_args()
  if arguments.table:
    contents.write()
    return
  found = docstrings.find()
  chosen = choose(found, arguments.names, parser.error)
  signal.signal(signal.SIGTERM, leave)
  sys.exit(run(chosen, arguments.limit))


def leave(number, frame):
  """Ends the shells of the running example; a second signal does not prevent that."""
  signal.signal(number, signal.SIG_IGN)
  sys.exit(128 + number)


def choose(examples, names, error):
  """Returns the examples that are meant, in the order in which they were named."""
  if not names:
    return examples
  chosen = []
  for name in names:
    found = [example for example in examples if name in known_as(example)]
    if not found:
      error("no example is called %r; there are %s" % (
        name, ", ".join(label(example) for example in examples)))
    chosen += [example for example in found if example not in chosen]
  return chosen


def known_as(example):
  """Returns all that an example answers to."""
  path = example.path.relative_to(docstrings.ROOT)
  return {path.stem, label(example), str(path), "examples/" + label(example),
          path.parent.name, str(path.parent), *example.rows}


def label(example):
  """Returns its name in the table: book/two_clients."""
  return str(example.path.relative_to(docstrings.ROOT / "examples").with_suffix(""))


def run(examples, limit):
  """Runs them and prints the table; returns the exit code."""
  width = max([len(label(example)) for example in examples] + [len("example")])
  print("%-*s  %7s  %s" % (width, "example", "seconds", "pass"), flush=True)
  failed, skipped, start = [], 0, time.monotonic()
  for example in examples:
    result = checking.check(example, limit)
    said = "only on %s" % result.skipped if result.skipped else "no" if result.problem else "yes"
    print("%-*s  %7.1f  %s" % (width, label(example), result.seconds, said), flush=True)
    skipped += bool(result.skipped)
    if result.problem:
      failed.append((example, result.problem))
  for example, problem in failed:
    print("\n%s, - expected, + printed:\n%s" % (label(example), problem))
  print("\n%d passed, %d failed, %d skipped in %.0f s" % (
    len(examples) - len(failed) - skipped, len(failed), skipped, time.monotonic() - start))
  return 1 if failed else 0


if __name__ == "__main__":
  main()
