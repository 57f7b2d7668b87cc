"""Runs a program of tf1ps, from the command line to the exit code.

TensorFlow reads its environment while it is imported, and the user's program may define flags. So
the order matters:

1. `run` parses tf1ps's own flags and refuses bad values. It ignores flags that it does not know
   yet.
2. It sets the environment: quiet, and without GPUs for a task that must not see GPUs.
3. It takes the defaults that the user's program defines (program_flags.py). It imports the program,
   which defines its own flags. It refuses a flag of the program if a program of tf1ps also has this
   flag. It answers `--help`.
4. It parses the whole command line and refuses unknown flags.
5. It calls the program's main. An error becomes one line (see errors.py), and exit code 1.

From step 1 on, a signal ends the main thread.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib.util
import logging
import os
import sys
from typing import Callable, List

from absl import flags

from tf1ps import links, runner, version
from tf1ps.cli import command_line, errors, program_flags
from tf1ps.cli import flags as flags_lib
from tf1ps.cli import help as help_lib
from tf1ps.cli import links as links_lib
from tf1ps.cluster import ExitWatch
from tf1ps.compat import (
  ENDED_BY_SIGNAL,
  EXIT_FAILED,
  EXIT_REFUSED,
  LINE_TIME,
  JsonStream,
  guard_streams,
  held_back,
  quiet_environment,
  quiet_python,
  remove_converted_files,
  signal_exit_code,
  use_json_lines,
)
from tf1ps.program import check_source, file_of
from tf1ps.training import GPU_NONE, LOG_JSON, OLD_FLAGS, TABLE

_TASKS = ("worker", "ps", "evaluator", "task")
# These programs never import a user's program, so it may define a flag that only they have.
_WITHOUT_PROGRAM = {"reset", "ssh", "status", "top"}

_HELP = {*command_line.HELP, *command_line.HELP_ALL}

FLAGS = flags.FLAGS
UsageError = errors.UsageError


def run(program_name: str, summary: str, argv: List[str], main: Callable[[object], int],
        check: Callable[[], None] = lambda: None, needs_program: bool = True, lazy: bool = False,
        takes_names: bool = False,
        on_failure: Callable[[BaseException, str], None] = lambda error, text: None,
        launched: bool = False) -> int:
  """Runs a program.

  Args:
    program_name: a key of `PROGRAMS`, such as "worker".
    summary: the task of tf1ps-NAME, for --help.
    argv: the arguments after the name. An argument without a dash, the path or module of the
      user's program, becomes --program=NAME in this list.
    main: gets the user's `Program`, or None; with `takes_names` it gets the names. It returns the
      exit code.
    check: raises an error for wrong flags, before the user's program and TensorFlow are imported.
    needs_program: whether --program must be given.
    lazy: whether the user's program is imported only if the command line has one of its flags.
    takes_names: whether the arguments that are not flags are names. Such a program has no
      --program.
    on_failure: called with the error that ends the program, and with its line.
    launched: whether a launcher started this task.

  Returns:
    The exit code. A launcher gets EXIT_REFUSED after an error that would also end another start.
  """
  name = "tf1ps-" + program_name
  guard_streams()
  if "--version" in argv:
    print("%s %s" % (name, version.__version__))
    return 0
  prepare_output(program_name, argv)
  program, calls_main = None, False
  # Process 1 of a container has no default action for signals, and would ignore them until `main`.
  watch = ExitWatch()
  try:
    folder = links_lib.find_folder(argv) if program_name in links_lib.PROGRAMS else ""
    if folder:
      links_lib.begin(program_name, folder)  # before there are threads
    with watch:
      flags_lib.define(program_name)
      if takes_names:
        FLAGS.set_gnu_getopt()
      else:
        argv[:] = command_line.name_program(argv, program_name)
      wants_help = bool(_HELP.intersection(argv))
      others = _parse_ours(name, argv, wants_help)
      path = not takes_names and FLAGS["program"].value
      quiet_environment(FLAGS["verbosity"].value)
      if path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # as `python -m NAME` finds a module
      if path:
        check_source(path)
      defaults = program_flags.read(path) if path else program_flags.NONE
      program_flags.set_defaults(program_flags.without_given(defaults, is_given), FLAGS)
      verbosity = FLAGS["verbosity"].value
      quiet_environment(verbosity)
      if "gpu_memory" in FLAGS and FLAGS["gpu_memory"].value == GPU_NONE:
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
      if path and not wants_help:
        if others:
          _refuse_misspelt(name, path, others)
        check()
      FLAGS.unparse_flags()  # until the program has defined its own
      if path and (not lazy or wants_help or others or defaults.others or not _is_there(path)):
        program = load(path, verbosity)
        program_flags.set_other_defaults(defaults, FLAGS)
      if wants_help:
        print(help_lib.text(program_name, summary, program.module.__name__ if program else None,
                            shows_all=not set(argv).isdisjoint(command_line.HELP_ALL)))
        return 0
      names = _parse(name, argv, takes_names)
      calls_main = True
      if takes_names:
        return main(names)
      if needs_program and not path:
        raise UsageError(
          "the program is missing: a module's name or the path of a .py file, as in "
          "`%s digits.py`" % name)
      return main(program)
  except (Exception, SystemExit, KeyboardInterrupt) as error:
    caught = error if watch.number is None else SystemExit(signal_exit_code(watch.number))
    code = _fail(name, caught, program, on_failure)
    is_refused = code == EXIT_FAILED and (not calls_main or isinstance(caught, UsageError))
    return EXIT_REFUSED if launched and is_refused else code


def asks_for_text(argv: List[str]) -> bool:
  """Whether a command line asks only for --help or --version."""
  return "--version" in argv or bool(_HELP.intersection(argv))


def prepare_output(program_name: str, argv: List[str]) -> None:
  """Sets up stdout, stderr and the log of a program, as its flags ask for it."""
  guard_streams()
  _log_to_stdout(program_name in _TASKS)
  _use_log_format(program_name, argv)


def refuse(program_name: str, error: BaseException) -> int:
  """Prints an error that comes before `run`, as `run` does; returns the exit code."""
  return _fail("tf1ps-" + program_name, error, None, lambda caught, text: None)


def is_given(name: str) -> bool:
  """Whether the command line has a given flag of tf1ps."""
  return name in FLAGS and bool(FLAGS[name].present)


def is_verbose() -> bool:
  """Whether --verbosity asks for details."""
  return FLAGS.is_parsed() and FLAGS.verbosity in ("debug", "info")


def prepare_tensorflow():
  """Imports TensorFlow without its messages, in graph mode; returns it."""
  with held_back(FLAGS.verbosity):
    import tensorflow.compat.v1 as tf

  quiet_python(FLAGS.verbosity)
  tf.disable_v2_behavior()
  return tf


def open_devices(config=None) -> None:
  """Makes TensorFlow look for GPUs without messages, as the start of a server also does."""
  import tensorflow.compat.v1 as tf

  with held_back(FLAGS.verbosity):
    tf.Session(config=config).close()


def leave(code: int) -> None:
  """Ends the process immediately, without waiting for a server's threads or an open session."""
  links.deliver()  # before the exit, which also ends the sidecar of this process
  sys.stdout.flush()
  sys.stderr.flush()
  logging.shutdown()
  remove_converted_files()
  os._exit(code)


def last_line(text: str, code: int) -> None:
  """Prints a task's last line."""
  line = "%s, exit code %d" % (text, code)
  if isinstance(sys.stdout, JsonStream):
    sys.stdout.log(line, severity="ERROR" if code else "INFO", exit_code=code)
  else:
    print(line, flush=True)


def _fail(name: str, error: BaseException, program, on_failure) -> int:
  """Prints why a program fails; returns the exit code."""
  signum = errors.signal_of(error)
  if signum is not None:
    text, code = ENDED_BY_SIGNAL + str(signum), signal_exit_code(signum)
  else:
    shown = errors.show_traceback(error, program, always=is_verbose())
    text, code = errors.line(error, program) if shown else str(error), EXIT_FAILED
  print("%s: %s" % (name, text), file=sys.stderr, flush=True)
  on_failure(error, text)
  return code


def load(path: str, verbosity: str):
  """Imports TensorFlow and the user's program; returns the `Program`."""
  with held_back(verbosity):
    import tensorflow.compat.v1 as unused_tf  # noqa: F401  before the program does, without messages
  from tf1ps.program import load_program

  names = [option.name for option in TABLE if not set(option.programs) <= _WITHOUT_PROGRAM]
  before = {name: FLAGS[name] for name in names if name in FLAGS}
  program = load_program(path)
  for name in names:
    if name in FLAGS and FLAGS[name] is not before.get(name):
      _refuse_flag(name)
  return program


def _refuse_misspelt(name: str, path: str, others: List[str]) -> None:
  """Refuses a flag that is nearly a flag of tf1ps, and that no file of the program has as a text.

  Any other flag may be the program's. Only the program's import, which imports TensorFlow, shows
  which flags it defines.
  """
  own = runner.OwnFlags()

  def parse(file):
    with contextlib.suppress(OSError, SyntaxError, ValueError), open(file, "rb") as source:
      tree = ast.parse(source.read())
      own.look(tree)
      return tree

  runner.find_own_files([file_of(path) or path], parse)
  for text in others:
    flag = text.lstrip("-").partition("=")[0]
    near = difflib.get_close_matches(flag, [*own.texts, *FLAGS], n=1, cutoff=0.8)
    if text.startswith("-") and not own.texts.intersection([flag, flag[len("no"):]]) and (
        flag in OLD_FLAGS or near and near[0] in FLAGS):
      raise UsageError(errors.no_such_flag(flag, FLAGS, name))


def _refuse_flag(name: str) -> None:
  """Refuses a flag of the user's program that a program of tf1ps has.

  absl refuses only a flag of the running program, and neither --log_dir nor --verbosity.
  """
  theirs, = (module for module, defined in FLAGS.flags_by_module_dict().items()
             if any(flag is FLAGS[name] for flag in defined))
  ours = next(option.programs[0] for option in TABLE if option.name == name)
  raise UsageError("the flag '%s' is defined twice: by tf1ps-%s and in %s. Rename that of the "
                   "program." % (name, ours, getattr(sys.modules.get(theirs), "__file__", theirs)))


def _is_there(path: str) -> bool:
  try:
    return os.path.isfile(path) or importlib.util.find_spec(path) is not None
  except (ImportError, ValueError):
    return False


def _parse_ours(name: str, argv: List[str], wants_help: bool) -> List[str]:
  """Parses tf1ps's flags; returns the other arguments, which the user's program may know."""
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
    raise UsageError(errors.no_such_flag(error.flagname, FLAGS, name)) from error
  except flags.Error as error:
    raise UsageError("%s (see %s --help)" % (str(error).strip(), name)) from error
  if len(rest) > 1 and not takes_names:
    raise UsageError("%r is not a flag: each argument begins with -- (see %s --help)" % (
      rest[1], name))
  return rest[1:]


class _TaskFormatter(logging.Formatter):
  """Puts the time of day before one-line messages; the lines of a table stay aligned without it."""

  def __init__(self):
    super().__init__("%(asctime)s %(message)s", LINE_TIME)

  def usesTime(self):  # noqa: N802  logging's name
    return True

  def formatMessage(self, record):  # noqa: N802
    return record.message if "\n" in record.message else super().formatMessage(record)


def _use_log_format(program_name: str, argv: List[str]) -> None:
  """Makes the output JSON if the flags ask for JSON, before the parse of the flags, which may fail.

  The result of tf1ps-status is already a single JSON object.
  """
  if program_name != "status" and command_line.find_value(argv, "log_format") == LOG_JSON:
    task = "tf1ps-" + program_name
    if program_name in _TASKS and program_name != "task":
      task = "%s %s" % (command_line.find_value(argv, "job_name") or program_name,
                        command_line.find_value(argv, "task_index") or "0")
    use_json_lines(task)


def _log_to_stdout(is_task: bool) -> None:
  logger = logging.getLogger("tf1ps")
  if logger.handlers:
    return
  handler = logging.StreamHandler(sys.stdout)
  handler.setFormatter(_TaskFormatter() if is_task else logging.Formatter("%(message)s"))
  logger.addHandler(handler)
  logger.setLevel(logging.INFO)
  logger.propagate = False
