"""tf1ps-doctor: reads TensorFlow 1 programs, runs nothing, and lists what fails on today's.

Exit codes: 0, nothing was found; 1, there are findings; 2, a file could not be read, or the command
line is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tokenize
from typing import Iterator, List, Tuple

from tf1ps import doctor, runner, version

_NAME = "tf1ps-doctor"
_EXIT_FOUND, _EXIT_UNREADABLE = 1, 2


def run(argv: List[str]) -> int:
  """Runs the program; returns the exit code."""
  try:
    request = _parser().parse_args(argv)
  except SystemExit as error:  # --help, or a wrong flag, of which argparse has printed the error
    return error.code or 0
  programs, errors = _read_all(request.paths)
  findings = [finding for program in programs for finding in doctor.find_all(program)]
  for finding in findings:
    print("%s:%d:%d: %s: %s [%s]" % (
      finding.path, finding.line, finding.column, finding.rule.kind, finding.message,
      finding.rule.name))
  for error in errors:
    print("%s: %s" % (_NAME, error), file=sys.stderr)
  return _EXIT_UNREADABLE if errors else _EXIT_FOUND if findings else 0


def _parser() -> argparse.ArgumentParser:
  parser = argparse.ArgumentParser(
    prog=_NAME, allow_abbrev=False,
    description="Reads TensorFlow 1 programs, runs nothing, and lists what fails on today's "
                "TensorFlow or with several tasks.")
  parser.add_argument("paths", nargs="+", metavar="FILE|DIR",
                      help="a program, or a folder of them")
  parser.add_argument("--version", action="version", version="%s %s" % (_NAME, version.__version__))
  return parser


def _read_all(paths: List[str]) -> Tuple[List[doctor.Program], List[str]]:
  """Reads programs; returns them, and the errors of those that cannot be read."""
  programs, errors = [], []
  for path in (file for each in paths for file in _files(each)):
    try:
      with tokenize.open(path) as file:
        programs.append(doctor.read_program(path, file.read(), _mend))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
      errors.append("%s: %s" % (path, getattr(error, "strerror", None) or error))
    except (doctor.UnreadableError, runner.MissingLibraryError) as error:
      errors.append(str(error))
  return programs, errors


def _files(path: str) -> Iterator[str]:
  """Yields the Python files of a folder, without hidden folders and environments; or the path."""
  if not os.path.isdir(path):
    yield path
    return
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__"))
                        and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg")))
    for name in sorted(files):
      if name.endswith(".py"):
        yield os.path.join(folder, name)


def _mend(text: str) -> Tuple[str, List[int]]:
  """Mends Python 2; see `doctor.read_program`."""
  mended = runner.Python2().mend(text)
  return mended.text, mended.lines


def main() -> None:
  """The console script."""
  sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
  main()
