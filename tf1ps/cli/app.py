"""What the programs share: from the command line to the exit code.

The order matters, since TensorFlow reads its environment while it is imported, and the user's
program may define flags:

1. Our flags are parsed, whatever else there is; one with a bad value is refused.
2. The environment is made quiet, GPUs are hidden where a task shall see none.
3. The user's program is imported: its flags stand beside ours. `--help` is answered.
4. All of the command line is parsed; an unknown flag is refused.
5. The program's main runs. An error becomes one line (see errors.py), and exit code 1.
"""

from __future__ import annotations

import difflib
import importlib.util
import logging
import os
import sys
from typing import Callable, List

from absl import flags

from tf1ps import version
from tf1ps.cli import errors
from tf1ps.cli import flags as flags_lib
from tf1ps.cli import help as help_lib
from tf1ps.compat import (
  EXIT_FAILED,
  guard_streams,
  held_back,
  quiet_environment,
  quiet_python,
  signal_exit_code,
)
from tf1ps.training import GPU_NONE, OLD_FLAGS

FLAGS = flags.FLAGS
UsageError = errors.UsageError


def run(program_name: str, summary: str, argv: List[str], main: Callable[[object], int],
        needs_program: bool = True, lazy: bool = False, takes_names: bool = False) -> int:
  """Runs a program's main.

  Args:
    program_name: one of `options.PROGRAMS`, such as "worker".
    summary: what it does, for --help.
    argv: the arguments after the name.
    main: gets the user's program (a module's Program, or None) or, with `takes_names`, the names;
      returns the exit code.
    needs_program: whether --program must be given.
    lazy: whether the user's program is imported only for flags that are not ours.
    takes_names: whether arguments that are no flags are names, before or after the flags; such a
      program has no --program.

  Returns:
    The exit code.
  """
  guard_streams()
  name = "tf1ps-" + program_name
  if "--version" in argv:
    print("%s %s" % (name, version.__version__))
    return 0
  _log_to_stdout()
  program = None
  try:
    flags_lib.define(program_name)
    if takes_names:
      FLAGS.set_gnu_getopt()
    wants_help = any(a in ("--help", "-h", "-help", "--helpfull", "--helpshort") for a in argv)
    others = _parse_ours(name, argv, wants_help)
    path, verbosity = not takes_names and FLAGS["program"].value, FLAGS["verbosity"].value
    quiet_environment(verbosity)
    if "gpu_memory" in FLAGS and FLAGS["gpu_memory"].value == GPU_NONE:
      os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    FLAGS.unparse_flags()  # until the program's are there
    if path and (not lazy or wants_help or others or not _is_there(path)):
      program = _load(path, verbosity)
    if wants_help:
      print(help_lib.text(program_name, summary, program.module.__name__ if program else None))
      return 0
    names = _parse(name, argv, takes_names)
    if takes_names:
      return main(names)
    if needs_program and not path:
      raise UsageError("--program is missing: a module's name or the path of a .py file")
    return main(program)
  except (Exception, SystemExit, KeyboardInterrupt) as error:
    return _fail(name, error, program)


def is_verbose() -> bool:
  """Whether everything there is to say shall be said."""
  return FLAGS.is_parsed() and FLAGS.verbosity in ("debug", "info")


def prepare_tensorflow():
  """Imports TensorFlow, quiet and in graph mode; returns it."""
  with held_back(FLAGS.verbosity):
    import tensorflow.compat.v1 as tf

  quiet_python(FLAGS.verbosity)
  tf.disable_v2_behavior()
  return tf


def open_devices(config=None) -> None:
  """Has TensorFlow look for GPUs now, in silence; a task with a server has done so already."""
  import tensorflow.compat.v1 as tf

  with held_back(FLAGS.verbosity):
    tf.Session(config=config).close()


def leave(code: int) -> None:
  """Ends the process at once: neither a server's threads nor an open session hold it up."""
  sys.stdout.flush()
  sys.stderr.flush()
  logging.shutdown()
  os._exit(code)


def last_line(text: str, code: int) -> None:
  """Prints a task's last line."""
  print("%s, exit code %d" % (text, code), flush=True)


def _fail(name: str, error: BaseException, program) -> int:
  """Says why a program ends; returns the exit code."""
  signum = errors.signal_of(error)
  if signum is not None:
    text, code = "ended by signal %d" % signum, signal_exit_code(signum)
  else:
    shown = errors.show_traceback(error, program, always=is_verbose())
    text, code = errors.line(error) if shown else str(error), EXIT_FAILED
  print("%s: %s" % (name, text), file=sys.stderr, flush=True)
  return code


def _load(path: str, verbosity: str):
  with held_back(verbosity):
    import tensorflow.compat.v1 as unused_tf  # noqa: F401  the program's import is a silent one
  from tf1ps.program import load_program

  return load_program(path)


def _is_there(path: str) -> bool:
  try:
    return os.path.isfile(path) or importlib.util.find_spec(path) is not None
  except (ImportError, ValueError):
    return False


def _parse_ours(name: str, argv: List[str], wants_help: bool) -> List[str]:
  """Gives our flags their values; returns what only the user's program can know."""
  try:
    return FLAGS([name] + argv, known_only=True)[1:]
  except flags.Error as error:
    if wants_help:
      return []
    raise UsageError("%s (see %s --help)" % (str(error).strip(), name)) from error


def _parse(name: str, argv: List[str], takes_names: bool) -> List[str]:
  try:
    rest = FLAGS([name] + argv)
  except flags.UnrecognizedFlagError as error:
    advice = OLD_FLAGS.get(error.flagname, OLD_FLAGS.get(error.flagname[len("no"):]))
    if advice:
      raise UsageError("there is no flag --%s since 0.2: %s (see %s --help)" % (
        error.flagname, advice, name)) from error
    near = difflib.get_close_matches(error.flagname, list(FLAGS), n=1)
    raise UsageError("there is no flag --%s%s (see %s --help)" % (
      error.flagname, "; did you mean --%s?" % near[0] if near else "", name)) from error
  except flags.Error as error:
    raise UsageError("%s (see %s --help)" % (str(error).strip(), name)) from error
  if len(rest) > 1 and not takes_names:
    raise UsageError("%r is no flag: every argument begins with -- (see %s --help)" % (
      rest[1], name))
  return rest[1:]


def _log_to_stdout() -> None:
  logger = logging.getLogger("tf1ps")
  if logger.handlers:
    return
  handler = logging.StreamHandler(sys.stdout)
  handler.setFormatter(logging.Formatter("%(message)s"))
  logger.addHandler(handler)
  logger.setLevel(logging.INFO)
  logger.propagate = False
