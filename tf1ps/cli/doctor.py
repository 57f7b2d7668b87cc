"""tf1ps-doctor: lists what fails in TensorFlow 1 programs on today's TensorFlow; runs nothing.

Exit codes: 0, no findings; 1, findings; 2, a file could not be read, or the command
line is wrong.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import os
import sys
import tokenize
from typing import Iterator, List, NamedTuple, Tuple

from tf1ps import doctor, runner, version
from tf1ps.cli import doctor_report
from tf1ps.compat import near_path

_NAME = "tf1ps-doctor"
_EXIT_FOUND, _EXIT_UNREADABLE = 1, 2


class _Source(NamedTuple):
  program: doctor.SourceFile
  encoding: str


def run(argv: List[str]) -> int:
  """Runs the program; returns the exit code."""
  try:
    request = _parse(argv)
  except SystemExit as error:  # --help, or a wrong flag, whose error argparse has printed
    return error.code or 0
  findings, errors, files, is_changed = [], [], 0, False
  is_alone = request.diff or request.fix  # only the named files are changed
  for path in dict.fromkeys(file for given in request.paths for file in (
      _files(given) if is_alone or os.path.isdir(given) else _with_imports(given))):
    try:
      source = _read(path)
      if is_alone:
        is_changed |= _fix(source, request.fix)
      if request.fix:
        source = _read(path)
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
  has_findings = is_changed if request.diff else findings
  return _EXIT_UNREADABLE if errors else _EXIT_FOUND if has_findings else 0


def _parse(argv: List[str]) -> argparse.Namespace:
  parser = argparse.ArgumentParser(
    prog=_NAME, allow_abbrev=False,
    description="Reads TensorFlow 1 programs, runs nothing, and lists what fails on today's "
                "TensorFlow or with several tasks. Exit codes: 0, nothing was found; 1, there are "
                "findings; 2, a file could not be read.")
  parser.add_argument("paths", nargs="+", metavar="FILE|DIR", help="a program, or a folder of them")
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
    parser.error("--diff shows what --fix changes: leave one out")
  if (request.diff or request.fix) and request.format != "text":
    parser.error("--diff and --fix print text: leave --format=%s out" % request.format)
  return request


def _read(path: str) -> _Source:
  """Reads a program; raises UnreadableError with the path and the reason."""
  try:
    with open(path, "rb") as file:
      encoding, _ = tokenize.detect_encoding(file.readline)
    with open(path, encoding=encoding, newline="") as file:  # lines keep their ends
      return _Source(doctor.read_program(path, file.read(), _convert), encoding)
  except (OSError, SyntaxError, UnicodeDecodeError) as error:
    raise doctor.UnreadableError(
      "%s: %s%s" % (path, getattr(error, "strerror", None) or error,
                    near_path(path) if isinstance(error, FileNotFoundError) else "")) from error
  except runner.MissingLibraryError as error:
    raise doctor.UnreadableError(
      "%s: it is not Python 3. If it is Python 2, the library fissix reads it: "
      "pip install 'tf1ps[legacy]'" % path) from error


def _files(path: str) -> Iterator[str]:
  """Yields the path of a file, or a folder's Python files outside virtual environments."""
  if not os.path.isdir(path):
    yield _plain(path)
    return
  for folder, folders, files in os.walk(path):
    folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__"))
                        and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg")))
    for name in sorted(files):
      if name.endswith(".py"):
        yield _plain(os.path.join(folder, name))


def _with_imports(path: str) -> List[str]:
  """Returns a file and the program's own files that it imports, directly or indirectly."""
  def parse(name):
    try:
      return _read(name).program.tree
    except doctor.UnreadableError:
      return None

  before = list(sys.path)
  sys.path[:1] = [os.path.dirname(os.path.abspath(path))]  # as when Python runs the file
  try:
    files = runner.find_own_files([os.path.abspath(path)], parse)
  finally:
    sys.path[:] = before
  is_absolute = os.path.isabs(path)
  return [_plain(path)] + [name if is_absolute else os.path.relpath(name) for name in files[1:]]


def _plain(path: str) -> str:
  """Returns a path without "./" and "//"; a path with ".." stays, because of symbolic links."""
  return path if os.pardir in path.split(os.sep) else os.path.normpath(path)


@functools.lru_cache(None)
def _python2() -> runner.Python2:
  return runner.Python2()


def _convert(text: str) -> Tuple[str, List[int]]:
  """Converts Python 2; see `doctor.read_program`."""
  fixed = _python2().convert(text)
  return fixed.text, fixed.lines


def _fix(source: _Source, is_written: bool) -> bool:
  """Prints the changes to a file, and writes them on request; returns whether there are any."""
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
  """Returns the lines for a diff, each with a newline."""
  return [line + "\n" for line in text.replace("\r\n", "\n").rstrip("\n").split("\n")]
