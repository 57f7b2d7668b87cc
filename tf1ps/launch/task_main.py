"""What a forked process does before, while and after it runs its task.

1. The fork server has made its streams fit for what comes (`prepare_streams`).
2. `become_task` sends stdout and stderr, Python's and everybody else's, into a pipe, puts the
   process into a process group of its own, and ties it to launcher and fork server (`lifeline`).
3. It gives the process its own signals, random numbers and environment; only then the function is
   unpickled, which imports its module, and called.
4. The process leaves by `os._exit` with what the function returned, after flushing: the threads of
   a TensorFlow server would hold up an ordinary end.
"""

from __future__ import annotations

import ctypes
import operator
import os
import pickle
import signal
import sys
import traceback

from tf1ps.compat import EXIT_FAILED
from tf1ps.launch import lifeline


def prepare_streams():
  """Makes Python's streams fit for pipes, which their descriptors become in the tasks.

  Here and not there: a stream that was opened on a file cannot be changed any more once its
  descriptor is a pipe. And modules that are imported here keep these objects, for their logs.
  """
  for stream in (sys.stdout, sys.stderr):
    # Lines, so that both streams keep their order; a name in any alphabet must not fail.
    stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def become_task(fork_server, lifeline_end, output, env, payload):
  """Turns this process, just forked, into a task. Does not return.

  Args:
    fork_server: process id of the parent.
    lifeline_end: file descriptor for `lifeline.watch`.
    output: file descriptor of the pipe for stdout and stderr.
    env: dict of environment variables; None removes one.
    payload: pickle of (function, args).
  """
  code = EXIT_FAILED
  try:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.setpgid(0, 0)
    lifeline.die_with_parent(fork_server)
    lifeline.watch(lifeline_end)
    code = _run(env, payload)
  except BaseException:
    traceback.print_exc()
  finally:
    os._exit(code)


def _run(env, payload):
  """What a task's process does; returns its exit code."""
  try:
    _reset_inherited()
    for name, value in env.items():
      if value is None:
        os.environ.pop(name, None)
      else:
        os.environ[name] = value
    function, args = pickle.loads(payload)
    return _exit_code(function(*args))
  except SystemExit as error:
    if error.code is None or isinstance(error.code, int):
      return (error.code or 0) & 0xFF  # As the interpreter does.
    sys.stderr.write("%s\n" % (error.code,))
    return EXIT_FAILED
  except BaseException:
    traceback.print_exc()
    return EXIT_FAILED
  finally:
    flush()


def _reset_inherited():
  """Gives this process its own signals and random numbers."""
  # A shell starts background commands with SIGINT ignored.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  signal.pthread_sigmask(signal.SIG_SETMASK, [])
  if "numpy" in sys.modules:
    # Else all tasks would draw the same numbers; Python's own `random` sees to it itself.
    sys.modules["numpy"].random.seed()


def _exit_code(result):
  """Returns a function's result as an exit code; None is 0."""
  code = 0 if result is None else operator.index(result)
  if not 0 <= code <= 255:
    raise ValueError("A task returns an exit code of 0 to 255, not %d." % code)
  return code


def flush():
  """Writes out what Python's streams and C's hold back."""
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except (OSError, ValueError):
      pass  # Closed, here or at its other end.
  ctypes.CDLL(None).fflush(None)
