"""Runs small programs on stock TensorFlow that show its faults in this field, and compares.

    python -m tests.upstream                 all programs, on this Python's TensorFlow
    python -m tests.upstream NAME...         some of them
    python -m tests.upstream --write         also notes the results for this TensorFlow

Each program of this folder needs nothing but TensorFlow. Its docstring says what is wrong, and what
would be right; it prints one line that begins with "seen: ". results.json has what each TensorFlow
has shown. A result that differs from the noted one is CHANGED, and the exit code is 1: TensorFlow
has fixed a fault, or has another one. For a TensorFlow without notes, those of the newest before
it count. `python -m tests.upstream --page` prints the README.md of this folder.
"""
from __future__ import annotations

import argparse
import ast
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
from typing import Dict, NamedTuple

HERE = pathlib.Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
LIMIT = 60.0  # seconds from "ready" on; a program that needs longer hangs
START_LIMIT = 120.0  # seconds to "ready": the import of TensorFlow on a busy machine
_NO_PROGRAMS = ("__init__", "__main__", "helper")


class Fault(NamedTuple):
  """A program, in the words of its docstring."""

  name: str
  what: str
  expected: str


def programs() -> Dict[str, Fault]:
  """Returns the programs of this folder by name."""
  found = {}
  for path in sorted(HERE.glob("*.py")):
    if path.stem not in _NO_PROGRAMS:
      what, _, expected = ast.get_docstring(ast.parse(path.read_text())).partition("\n\nExpected: ")
      found[path.stem] = Fault(path.stem, what, " ".join(expected.split()))
  return found


def run(name: str) -> str:
  """Runs a program; returns what it has shown: its words, "hangs", or how its process ended."""
  process = subprocess.Popen(
    [sys.executable, str(HERE / (name + ".py"))], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    universal_newlines=True, start_new_session=True)
  is_over = []

  def stop():
    is_over.append(True)
    os.killpg(process.pid, signal.SIGKILL)

  lines, timer = [], threading.Timer(START_LIMIT, stop)
  timer.start()
  try:
    for line in process.stdout:
      lines.append(line.strip())
      if lines[-1] == "ready":
        timer.cancel()
        timer = threading.Timer(LIMIT, stop)
        timer.start()
    process.wait()
  finally:
    timer.cancel()
    if process.poll() is None:
      stop()
      process.wait()
  if "ready" not in lines:
    raise RuntimeError("%s: no \"ready\" within %.0f s: it ended with %r after %r" % (
      name, START_LIMIT, process.returncode, lines))
  seen = [line[len("seen: "):] for line in lines if line.startswith("seen: ")]
  if is_over:
    return "hangs"
  if process.returncode < 0:
    return "the process dies by %s" % signal.Signals(-process.returncode).name
  return seen[0] if seen else "the process ends with %d" % process.returncode


def version() -> str:
  """Returns the version of this Python's TensorFlow as results.json has it, such as "2.21"."""
  code = "import tensorflow as tf; print(tf.__version__)"
  found = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE,
                         stderr=subprocess.DEVNULL, universal_newlines=True, check=True).stdout
  return ".".join(found.split()[-1].split(".")[:2])


def noted(results: dict, of: str) -> str:
  """Returns the version whose notes count for a TensorFlow: its own, or the newest before it."""
  def key(text):
    return tuple(int(part) for part in text.split("."))

  versions = sorted({each for found in results.values() for each in found}, key=key)
  return [each for each in versions if key(each) <= key(of)][-1]


def page() -> str:
  """Returns tests/upstream/README.md."""
  faults, results = programs(), json.loads(RESULTS.read_text())
  versions = sorted({each for found in results.values() for each in found},
                    key=lambda text: tuple(int(part) for part in text.split(".")))
  lines = [
    "# Faults of TensorFlow's own", "",
    "tf1ps works around these faults of stock TensorFlow. Each has a program in "
    "this folder that needs nothing but TensorFlow. `python -m "
    "tests.upstream` runs them on your TensorFlow, and names what has changed.", "",
    "|fault|expected|%s|" % "|".join(versions), "|-|-|%s" % ("-|" * len(versions))]
  for fault in faults.values():
    lines.append("|[%s](%s.py)|%s|%s|" % (
      " ".join(fault.what.split()).rstrip("."), fault.name, fault.expected.rstrip("."),
      "|".join(results[fault.name].get(each, "") for each in versions)))
  return "\n".join(lines) + "\n"


def main() -> int:
  """Runs the programs; returns the exit code."""
  parser = argparse.ArgumentParser(prog="python -m tests.upstream")
  parser.add_argument("names", nargs="*", help="programs of this folder; all without names")
  parser.add_argument("--write", action="store_true", help="note the results in results.json")
  parser.add_argument("--page", action="store_true", help="print README.md and run nothing")
  given = parser.parse_args()
  if given.page:
    print(page(), end="")
    return 0
  faults = programs()
  unknown = [name for name in given.names if name not in faults]
  if unknown:
    parser.error("there is no program %s" % ", ".join(unknown))
  results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
  here = version()
  before = noted(results, here) if results and not given.write else here
  print("TensorFlow %s, compared with the notes of %s" % (here, before))
  changed = 0
  for name in given.names or faults:
    seen = run(name)
    was = results.get(name, {}).get(before)
    is_changed = was is not None and was != seen
    changed += is_changed
    print("%-28s %s%s" % (name, seen, "   CHANGED: it was %r" % was if is_changed else ""),
          flush=True)
    if given.write:
      results.setdefault(name, {})[here] = seen
  if given.write:
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
  return 1 if changed else 0


if __name__ == "__main__":
  sys.exit(main())
