"""Runs the programs of tf1ps from Python code instead of a shell.

- `run_local` runs a whole job from a notebook, a test or a script, and returns its result.
- `main` lets a program's file start itself: `python program.py --num_workers=2`.

Both run a program such as tf1ps-local in a separate process. So the caller's process keeps its
flags, signal handlers and threads as they are, and needs no TensorFlow; nothing here imports
TensorFlow or absl. The program checks the arguments as it checks those of a shell, with the same
messages.

The launcher of `run_local` is in a separate Unix session: Ctrl-C reaches only the caller, which
then ends the launcher. The launcher also ends when the caller has ended for any reason.
"""

from __future__ import annotations

import builtins
import json
import logging
import os
import subprocess
import sys
import types
from typing import Any, Dict, List, Optional, TextIO, Union

from tf1ps.cli import command_line, errors, results
from tf1ps.compat import temporary_directory
from tf1ps.training import of_program

_PROGRAMS_OF_JOBS = {"ps": "ps", "evaluator": "evaluator"}  # every other job is a worker's
_log = logging.getLogger("tf1ps")


def run_local(program: Union[str, os.PathLike, types.ModuleType], *,
              output: Optional[TextIO] = None, program_flags: Optional[Dict[str, Any]] = None,
              **options: Any) -> results.JobResult:
  """Runs a job on this machine, as tf1ps-local does, and waits for its end.

  It may be called from any thread, any number of times, even concurrently. An exception, such as
  KeyboardInterrupt, first ends all tasks; the chief saves, if there is a checkpoint_dir.

  Args:
    program: a module, its name, or the path of a .py file. Each task imports it again.
    output: a text file that gets the output of all tasks, line by line. None: sys.stdout.
    program_flags: the values of flags that the program itself defines, by name.
    **options: the flags of tf1ps-local, by name: `num_workers=2, epochs=30, sync_replicas=True`.
      None means the default.

  Returns:
    The `JobResult`.

  Raises:
    UsageError: tf1ps-local lacks an option, or refuses its value. It is a ValueError.
    LocalJobError: a task failed; the text names the task and has its last lines. It is a
      RuntimeError.
  """
  known = [option.name for option in of_program("local") if option.name != "program"]
  for name in options:
    if name not in known:
      raise errors.UsageError("run_local: " + errors.no_such_flag(name, known, "tf1ps-local"))
  if output is not None and not hasattr(output, "write"):
    raise errors.UsageError("run_local: output must be an open text file, got %r" % (output,))
  flags = {"program": _name_of(program), **options, **(program_flags or {})}
  argv = ["--%s=%s" % (name, _as_text(value)) for name, value in flags.items() if value is not None]
  with temporary_directory("call") as folder:
    path = os.path.join(folder, "result.json")
    _run(_command("local", "main_for_caller(%d, %r)" % (os.getpid(), path), argv), output)
    return results.read(path)


def main(argv: Optional[List[str]] = None) -> None:
  """Starts the program whose file Python runs; does not return.

  Call it at the end of a program, below `if __name__ == "__main__":`. Then `python program.py` does
  what tf1ps-local does with --program=program.py. With --job_name, or if TF_CONFIG in the
  environment names a task, it does what that task's program does, such as tf1ps-worker. A task
  ignores flags of workers and evaluators that its own program lacks, so that all tasks can have the
  same command line. With --cluster_resolver it does what tf1ps-task does.

  Args:
    argv: the arguments after the program's name; None: the arguments of the command line.

  Raises:
    UsageError: Python runs another file, or no file.
  """
  caller = sys._getframe(1).f_globals
  if caller.get("__name__") != "__main__":
    raise errors.UsageError(
      'tf1ps.main() was called while %s was imported: put it below `if __name__ == "__main__":`' % (
        caller.get("__name__")))
  spec, path = caller.get("__spec__"), caller.get("__file__", "")
  if spec is None and not path or hasattr(builtins, "__IPYTHON__"):
    raise errors.UsageError("tf1ps.main() is for the file of a program that Python runs: from a "
                            "notebook or a shell, call tf1ps.run_local")
  argv = sys.argv[1:] if argv is None else list(argv)
  name = "--program=" + (os.path.abspath(path) if spec is None else spec.name)
  started = _program_of(argv)
  command = _command("console", started + "()", [name, *command_line.without_others(argv, started)])
  sys.stdout.flush()
  sys.stderr.flush()
  # The task imports the file again, under the file's own name and with its flags, and sets up
  # TensorFlow for itself. Only a new interpreter can do that.
  os.execv(command[0], command)


def _name_of(program) -> str:
  """The name or the path of a program, for --program."""
  if isinstance(program, (str, os.PathLike)):
    return os.fspath(program)
  if not isinstance(program, types.ModuleType):
    raise errors.UsageError("run_local: program must be a module, its name, or the path of a .py "
                            "file, got %r" % (program,))
  if program.__name__ != "__main__" and program.__package__:
    return program.__name__  # the module may import other modules of its package
  path = getattr(program, "__file__", None)
  if path is None:
    raise errors.UsageError(
      "run_local: the module %s has no file: write the program into a file, because each task "
      "imports it" % program.__name__)
  return os.path.abspath(path)


def _as_text(value) -> str:
  """The value of a flag as a shell would give it."""
  if isinstance(value, bool):
    return str(value).lower()
  return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _program_of(argv) -> str:
  """The program that a command line asks for: "local", or the program of a task."""
  if command_line.find_value(argv, "cluster_resolver") is not None:
    return "task"
  job = command_line.find_value(argv, "job_name")
  if job is not None:
    return _PROGRAMS_OF_JOBS.get(job, "worker")
  try:
    job = json.loads(os.environ.get("TF_CONFIG", ""))["task"]["type"]
  except (ValueError, LookupError, TypeError, RecursionError):
    return "local"
  return _PROGRAMS_OF_JOBS.get(job, "worker")


def _command(module: str, call: str, argv: List[str]) -> List[str]:
  """The command of an interpreter that calls a function of a module of this room."""
  path = [entry for entry in sys.path if isinstance(entry, str)]
  code = "import sys; sys.path[:] = %r; from tf1ps.cli import %s; %s.%s" % (
    path, module, module, call)
  return [sys.executable, "-c", code, *argv]


def _run(command: List[str], output) -> None:
  """Runs a launcher to its end, even after an exception; a second exception kills all tasks."""
  first = None
  with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, encoding="utf-8", errors="replace",
                        start_new_session=True) as launcher:
    for end in (lambda: None, launcher.terminate, launcher.kill):
      try:
        end()
        _show(launcher.stdout, output)
        break
      except BaseException as error:
        first = error if first is None else first
  if first is not None:
    raise first


def _show(lines, output) -> None:
  """Shows lines until all processes have ended; drops the rest once `output` fails."""
  fails = False
  for line in lines:
    try:
      if not fails:
        print(line, end="", file=output, flush=True)
    except (OSError, ValueError) as error:
      fails = True
      _log.warning("the job goes on, but its output cannot be shown any more: %s", error)
