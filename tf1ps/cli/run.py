"""tf1ps-run: runs an unmodified TensorFlow 1 program on tf1ps.

All arguments after the program's file belong to the program, which may define absl flags. So
tf1ps-run does not use absl for its own flags:

1. `_parse` reads the flags before the file, or before `-m MODULE`.
2. `sys.argv` and `sys.path` become those of `python FILE ...` or `python -m MODULE ...`.
3. With --cluster_resolver, `_describe_cluster` sets TF_CONFIG, fills the program's arguments, and
   waits for the names of the hosts.
4. The program runs as `__main__`. Its own files get their imports of TensorFlow from `tf1ps.v1`.
5. `_end` ends the sessions that the program left open, and reports the end of the program. The exit
   code is the program's exit code, or 1 if its job failed.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import sys
import textwrap
import traceback
import types
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from tf1ps import runner, session, version
from tf1ps.cli import errors
from tf1ps.cluster import (
  AUTO_RESOLVER,
  DEFAULT_PORT,
  RESOLVERS,
  JobCounts,
  names_to_dial,
  resolve_cluster,
  resolve_environment,
  wait_for_names,
  with_chief,
)
from tf1ps.compat import (
  EXIT_FAILED,
  START_TIMEOUT,
  Error,
  error_line,
  is_installed_file,
  near_path,
  remove_early_end,
  signal_exit_code,
)
from tf1ps.transfer import PACK_VARIABLE, pack_bytes_of_process

_NAME = "tf1ps-run"
_RESOLVERS = [name for name in RESOLVERS if name != "flags"]  # here, host flags are the program's
_FLAGS = (
  ("--print", "Print what would be replaced, line by line, and run nothing."),
  ("--pre_1_0", "Functions take their arguments in the order from before TensorFlow 1.0."),
  ("--2to3", "Convert Python 2 (print statements, xrange, moved modules) in memory."),
  ("--cluster_resolver=" + "|".join(_RESOLVERS), "Find the cluster in the environment of the "
   "scheduler. Set TF_CONFIG for the program, and put the values in its arguments: {ps_hosts}, "
   "{worker_hosts}, {chief_hosts}, {job_name}, {task_index}."),
  ("--num_ps=N", "How many of the scheduler's tasks, from the first on, are ps [1]."),
  ("--evaluator", "The last of the scheduler's tasks is an evaluator."),
  ("--port=N", "The port of the scheduler's tasks [%d]." % DEFAULT_PORT),
  ("--version", "Print the version."),
  ("--help", "Print this."),
)
_WITH_CLUSTER = ("--num_ps", "--evaluator", "--port")  # they need --cluster_resolver
_USAGE = """\
tf1ps-run: runs an unmodified TensorFlow 1 program: imports of tensorflow in its own files are
answered by tf1ps.v1.

  tf1ps-run [FLAGS] FILE ARGUMENTS...
  tf1ps-run [FLAGS] -m MODULE ARGUMENTS...

All arguments after FILE or MODULE are the program's.

"""
_TF1PS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STARTED_BY = (_TF1PS + os.path.join("runner", ""), _TF1PS + os.path.join("cli", "run.py"),
               "<frozen importlib")
_READ_BY_ABSL = ("flagfile", "undefok")  # absl keeps these flags apart from its other flags
_PYTHON2_HINT = "this looks like Python 2: tf1ps-run --2to3 converts it while it runs"


class _Request(NamedTuple):
  flags: Dict[str, str]  # the given flags and their values; "" for a flag without a value
  file: Optional[str]  # the program's path; None with `module`
  module: Optional[str]  # the program's name
  argv: List[str]  # the program's arguments


def run(argv: List[str]) -> int:
  """Runs a program; returns the exit code."""
  try:
    request = _parse(list(argv))
    if "--help" in request.flags:
      print(_USAGE + "\n".join(_help_of(*flag) for flag in _FLAGS))
      return 0
    if "--version" in request.flags:
      print("%s %s" % (_NAME, version.__version__))
      return 0
    python2 = runner.Python2() if "--2to3" in request.flags else None
    compiler = runner.Compiler(python2, _remark)
    _set_path(os.getcwd() if request.file is None else
              os.path.dirname(os.path.realpath(request.file)))
    if "--print" in request.flags:
      return _print(request, compiler)
    if "--pre_1_0" in request.flags:
      from tf1ps import v1

      v1.use_pre_1_0()
    argv = request.argv
    if "--cluster_resolver" in request.flags:
      argv = _describe_cluster(request.flags, argv)
    sys.argv = [request.file or "-m", *argv]
    _name_ignored_flags(request, argv, compiler)
  except Error as error:
    return _say(error)
  with runner.answer_imports(compiler):
    return _end(_run(request, compiler), may_fix=python2 is None)


def _parse(argv: List[str]) -> _Request:
  """Reads the flags, up to the program."""
  flags, takes_value = {}, {name.partition("=")[0]: "=" in name for name, _ in _FLAGS}
  while argv and argv[0].startswith("-") and argv[0] != "-m":
    given = "--help" if argv[0] == "-h" else argv.pop(0)
    flag, has_value, value = given.partition("=")
    if flag == "--help":
      return _Request({flag: ""}, None, None, [])
    if flag not in takes_value or has_value and not takes_value[flag]:
      near = difflib.get_close_matches(flag, takes_value, n=1)
      raise errors.UsageError("%s is not a flag%s (see %s --help)" % (
        given, "; did you mean %s?" % near[0] if near else "", _NAME))
    if takes_value[flag] and not value:
      raise errors.UsageError("%s needs a value, as %s=VALUE (see %s --help)" % (flag, flag, _NAME))
    flags[flag] = value
  for flag in _WITH_CLUSTER:
    if flag in flags and "--cluster_resolver" not in flags:
      raise errors.UsageError("%s needs --cluster_resolver" % flag)
  is_module = argv[:1] == ["-m"]
  argv = argv[is_module:]
  if not argv and "--version" not in flags:
    raise errors.UsageError("%s is missing (see %s --help)" % (
      "the module's name after -m" if is_module else "the program's file", _NAME))
  if argv and not is_module and not os.path.isfile(argv[0]):
    raise errors.UsageError("the file %s does not exist%s" % (argv[0], near_path(argv[0], ".py")))
  program = argv[0] if argv else None
  return _Request(flags, None if is_module else program, program if is_module else None, argv[1:])


def _set_path(folder: str) -> None:
  """Puts the program's folder into sys.path, instead of this script's folder."""
  script = os.path.dirname(os.path.realpath(sys.argv[0]))
  sys.path[:1] = [folder] if os.path.realpath(sys.path[0]) == script else [folder, sys.path[0]]


def _help_of(name: str, meaning: str) -> str:
  if len(name) <= 11:
    return "  %-11s %s" % (name, "\n".join(textwrap.wrap(meaning, 86, subsequent_indent=" " * 14)))
  return "\n".join(["  " + name] + textwrap.wrap(
    meaning, 86, initial_indent=" " * 14, subsequent_indent=" " * 14))


def _describe_cluster(flags: Dict[str, str], argv: List[str]) -> List[str]:
  """Sets TF_CONFIG to the cluster that the scheduler's environment describes.

  Args:
    flags: the flags of tf1ps-run.
    argv: the program's arguments.

  Returns:
    The arguments, in which the cluster's values replace {ps_hosts} and the other placeholders.
  """
  name = flags["--cluster_resolver"]
  if name not in _RESOLVERS:
    raise errors.UsageError("--cluster_resolver must be one of %s, got %s" % (
      ", ".join(_RESOLVERS), name))
  counts = JobCounts(_number(flags, "--num_ps", None), "--evaluator" in flags,
                     _number(flags, "--port", DEFAULT_PORT))
  environment = resolve_environment(name, os.environ, counts=counts)
  if environment is None:
    raise errors.UsageError("--cluster_resolver=auto found neither TF_CONFIG nor the variables of "
                            "a JobSet, of an Indexed Job or of a step of Slurm")
  cluster = resolve_cluster(tf_config=environment.tf_config, source=environment.source)
  if environment.source != "TF_CONFIG":
    os.environ["TF_CONFIG"] = with_chief(environment.tf_config)
  if name == AUTO_RESOLVER:
    _print_line(str(environment))
  _print_line(cluster.describe().replace("\n", "; "))
  wait_for_names(names_to_dial(cluster), START_TIMEOUT)
  values = {job + "_hosts": ",".join(task.address for task in cluster.tasks(job))
            for job in ("ps", "worker", "chief")}
  values.update(job_name=cluster.job_name, task_index=str(cluster.task_index))
  for key, value in values.items():
    argv = [text.replace("{%s}" % key, value) for text in argv]
  return argv


def _number(flags: Dict[str, str], name: str, default: Optional[int]) -> Optional[int]:
  value = flags.get(name)
  if value is not None and not re.fullmatch("[0-9]{1,5}", value):
    raise errors.UsageError("%s=%s: give a number" % (name, value))
  return default if value is None else int(value)


def _name_ignored_flags(request: _Request, argv: List[str], compiler) -> None:
  """Prints which flags the program is going to ignore; the program runs anyway."""
  def parse(path):
    with contextlib.suppress(OSError, SyntaxError, ValueError), open(path, "rb") as file:
      return compiler.parse(file.read(), path).tree

  for name, near in runner.ignored_flags(_files_of(request), argv, parse):
    # These modules define flags that every absl program has.
    from absl import app as unused_app  # noqa: F401
    from absl import flags
    from absl import logging as unused_logging  # noqa: F401

    if name not in flags.FLAGS and name not in _READ_BY_ABSL:
      _print_line("no file of the program has a flag --%s, so it is ignored%s" % (
        name, "; did you mean --%s?" % near if near else ""))


def _files_of(request: _Request) -> List[str]:
  return ([os.path.abspath(request.file)] if request.module is None
          else runner.files_of_module(request.module))


def _run(request: _Request, compiler) -> Optional[BaseException]:
  """Runs the program to its end; returns the error that ended it."""
  try:
    remove_early_end()
    if request.module is None:
      path, spec = os.path.abspath(request.file), None
      code = compiler.compile_file(path)
    else:
      code, spec = runner.code_of_module(request.module, compiler)
      path = sys.argv[0] = spec.origin
    runner.run_code(code, path, spec)
  except BaseException as error:  # any error ends the program
    return error
  return None


def _end(error: Optional[BaseException], may_fix: bool) -> int:
  """Reports how the program ended, and ends the sessions that it left open.

  Args:
    error: the error that ended the program, or None.
    may_fix: whether to suggest --2to3 for an error from Python 2 code.

  Returns:
    The exit code.
  """
  code, text = _exit_code(error)
  if text:
    print(text, file=sys.stderr, flush=True)
  elif error is not None and not isinstance(error, SystemExit):
    _show(error)
    hint = (_PYTHON2_HINT if may_fix and runner.looks_like_python2(error)
            else runner.numpy_hint(error) or errors.near_file(error).lstrip("; ")
            or errors.gpu_hint(error))
    if hint:
      _print_line(hint)
  try:
    session.end_open_sessions(error)
  except SystemExit as left:
    return code or _exit_code(left)[0]
  except Exception as failed:
    return code or _say(failed)
  return code


def _exit_code(error: Optional[BaseException]) -> Tuple[int, str]:
  """Returns the exit code that Python gives an error, and the text of a sys.exit(text)."""
  if isinstance(error, KeyboardInterrupt):
    return signal_exit_code(errors.signal_of(error)), ""
  if not isinstance(error, SystemExit):
    return (EXIT_FAILED if error is not None else 0), ""
  if error.code is None or isinstance(error.code, int):
    return (error.code or 0) & 0xff, ""
  return EXIT_FAILED, str(error.code)


def _show(error: BaseException) -> None:
  """Prints an error as Python does, without the frames that started the program.

  An error of tf1ps names its reason, so only the program's lines are printed. For an error of the
  cluster or the disk, such as a missing task, only the last of these lines is printed.
  """
  if isinstance(error, runner.ProgramNotFoundError):
    _say(error)
    return
  is_ours = isinstance(error, Error)
  frames = _without_frames(error.__traceback__, lambda file: file.startswith(_STARTED_BY) or (
    is_ours and (file.startswith(_TF1PS))))
  if is_ours:  # a program may itself be installed
    frames = _without_frames(frames, is_installed_file) or frames
  error = error.with_traceback(frames)
  if is_ours and frames and isinstance(error, (RuntimeError, OSError)):
    last = traceback.extract_tb(frames)[-1]
    _print_line("%s:%d in %s: %s: %s" % (
      _short(last.filename), last.lineno, last.name, type(error).__name__, error))
    return
  sys.excepthook(type(error), error, error.__traceback__)


def _without_frames(tb: Optional[types.TracebackType],
                    is_hidden: Callable[[str], bool]) -> Optional[types.TracebackType]:
  """Returns a traceback without the frames of hidden files."""
  frames = []
  while tb is not None:
    if not is_hidden(tb.tb_frame.f_code.co_filename):
      frames.append(tb)
    tb = tb.tb_next
  for outer, inner in zip(frames, frames[1:] + [None]):
    outer.tb_next = inner
  return frames[0] if frames else None


def _say(error: BaseException) -> int:
  _print_line(error_line(error))
  return EXIT_FAILED


def _print_line(text: str) -> None:
  print("%s: %s" % (_NAME, text), file=sys.stderr, flush=True)


def _remark(path: str, line: int, text: str) -> None:
  print("%s:%d: %s" % (_short(path), line, text), file=sys.stderr, flush=True)


def _print(request: _Request, compiler) -> int:
  """Prints what would be replaced in the program's own files; runs nothing."""
  bad, may_fix = [], "--2to3" not in request.flags

  def parse(path):
    with contextlib.suppress(OSError), open(path, "rb") as file:
      try:
        parsed = compiler.parse(file.read(), path)
      except SyntaxError as error:
        bad.append(path)
        print("%s:%s: SyntaxError: %s%s" % (
          _short(path), error.lineno, error.msg,
          "; " + _PYTHON2_HINT if may_fix and runner.looks_like_python2(error) else ""))
        return None
    for line, old, new in parsed.replaced:
      print("%s:%d: %s -> %s" % (_short(path), line, old, new))
    for line, text in parsed.remarks:
      print("%s:%d: %s" % (_short(path), line, text))
    return parsed.tree

  runner.find_own_files(_files_of(request), parse)
  if bad:
    return EXIT_FAILED
  try:
    limit = pack_bytes_of_process()
  except ValueError as error:
    raise errors.UsageError(str(error)) from None
  print("variables and gradients of %s" % (
    "fewer than %d bytes travel together (%s=0 sends each alone)" % (limit, PACK_VARIABLE)
    if limit else "every size travel alone (%s=0)" % PACK_VARIABLE))
  return 0


def _short(path: str) -> str:
  """Returns a path as a user writes it in the current folder."""
  folder = os.getcwd() + os.sep
  return path[len(folder):] if path.startswith(folder) else path
