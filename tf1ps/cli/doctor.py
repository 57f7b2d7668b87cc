"""tf1ps-doctor: reads TensorFlow 1 programs, runs nothing, and lists what fails on today's.

Exit codes: 0, nothing was found; 1, there are findings; 2, a file could not be read, or the command
line is wrong.
"""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
import tokenize
from typing import Callable, Iterator, List, NamedTuple, Tuple

from tf1ps import doctor, runner, version
from tf1ps.cli import doctor_report

_NAME = "tf1ps-doctor"
_EXIT_FOUND, _EXIT_UNREADABLE = 1, 2


class _Source(NamedTuple):
  """A file that was read."""

  program: doctor.Program
  encoding: str


def run(argv: List[str]) -> int:
  """Runs the program; returns the exit code."""
  try:
    request = _parse(argv)
  except SystemExit as error:  # --help, or a wrong flag, of which argparse has printed the error
    return error.code or 0
  findings, errors, files, is_changed, mend = [], [], 0, False, _Mender()
  for path in (file for each in request.paths for file in _files(each)):
    try:
      source = _read(path, mend)
      if request.diff or request.fix:
        is_changed |= _fix(source, request.fix)
      if request.fix:
        source = _read(path, mend)
    except doctor.UnreadableError as error:
      errors.append(str(error))
      continue
    files += 1
    findings += [] if request.diff else doctor.find_all(source.program)
  report = "" if request.diff else doctor_report.FORMATS[request.format](findings, files)
  if report:
    print(report)
  for error in errors:
    print("%s: %s" % (_NAME, error), file=sys.stderr)
  is_found = is_changed if request.diff else findings
  return _EXIT_UNREADABLE if errors else _EXIT_FOUND if is_found else 0


def _parse(argv: List[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog=_NAME, allow_abbrev=False,
    description="Reads TensorFlow 1 programs, runs nothing, and lists what fails on today's "
                "TensorFlow or with several tasks. Exit codes: 0, nothing was found; 1, there are "
                "findings; 2, a file could not be read.")
  parser.add_argument("paths", nargs="+", metavar="FILE|DIR",
                      help="a program, or a folder of them")
  parser.add_argument("--format", choices=sorted(doctor_report.FORMATS), default="text",
                      help="how findings are printed (default: text)")
  parser.add_argument("--diff", action="store_true",
                      help="print what --fix would change, and no findings")
  parser.add_argument("--fix", action="store_true",
                      help="change imports and old names in the files, print the changes, and list "
                           "what is left")
  parser.add_argument("--version", action="version", version="%s %s" % (_NAME, version.__version__))
  request = parser.parse_args(argv)
  if request.diff and request.fix:
    parser.error("--diff shows what --fix changes: give one of them")
  if (request.diff or request.fix) and request.format != "text":
    parser.error("--diff and --fix print text: leave --format=%s out" % request.format)
  return request


def _read(path: str, mend: Callable) -> _Source:
  """Reads a program.

  Raises:
    UnreadableError: with the path and the reason.
  """
  try:
    with open(path, "rb") as file:
      encoding, _ = tokenize.detect_encoding(file.readline)
    with open(path, encoding=encoding, newline="") as file:  # lines keep their ends
      return _Source(doctor.read_program(path, file.read(), mend), encoding)
  except (OSError, SyntaxError, UnicodeDecodeError) as error:
    raise doctor.UnreadableError(
      "%s: %s" % (path, getattr(error, "strerror", None) or error)) from error
  except runner.MissingLibraryError as error:
    raise doctor.UnreadableError(
      "%s: it is not Python 3. If it is Python 2, the library fissix reads it: "
      "pip install 'tf1ps[legacy]'" % path) from error


def _files(path: str) -> Iterator[str]:
  """Yields the Python files of a folder, without hidden folders and environments; or the path."""
  if not os.path.isdir(path):
    yield _plain(path)
    return
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__"))
                        and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg")))
    for name in sorted(files):
      if name.endswith(".py"):
        yield _plain(os.path.join(folder, name))


def _plain(path: str) -> str:
  """Returns a path without "./" and "//"; one with ".." stays, because of symbolic links."""
  return path if os.pardir in path.split(os.sep) else os.path.normpath(path)


class _Mender:
  """Mends Python 2; see `doctor.read_program`."""

  def __init__(self):
    self._python2 = None

  def __call__(self, text: str) -> Tuple[str, List[int]]:
    self._python2 = self._python2 or runner.Python2()
    mended = self._python2.mend(text)
    return mended.text, mended.lines


def _fix(source: _Source, is_written: bool) -> bool:
  """Prints the mechanical changes, and writes them on request; returns whether there are any."""
  program = source.program
  new = doctor.fix(program, runner.replace_imports)
  if new == program.text:
    return False
  path = program.path.lstrip(os.sep)
  sys.stdout.writelines(difflib.unified_diff(
    _lines(program.text), _lines(new), "a/" + path, "b/" + path))
  if is_written:
    with open(program.path, "w", encoding=source.encoding, newline="") as file:
      file.write(new)
  return True


def _lines(text: str) -> List[str]:
  """Returns the lines for a diff, each with one end of line."""
  return [line + "\n" for line in text.replace("\r\n", "\n").rstrip("\n").split("\n")]


def main() -> None:
  """The console script. It ends quietly by SIGPIPE when its reader goes: `| head`.

  Streams that drop text (see compat/streams.py) would lose findings while `| less` rests.
  """
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
  main()
