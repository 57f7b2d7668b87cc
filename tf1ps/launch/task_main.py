"""A forked process before, while and after it runs its task; and how it ends with the launcher.

1. The fork server has prepared the streams (`prepare_streams`).
2. `become_task` sends stdout and stderr, of Python and of C, into a pipe, puts the process into a
   process group of its own, and ties it to the launcher and the fork server.
3. It gives the process its own signals, random numbers and environment. Only then does it unpickle
   the function, which imports the function's module, and call it.
4. After flushing, the process leaves by `os._exit` with the function's result: the threads of a
   TensorFlow server would delay an ordinary end.

A task ends with its launcher by three means, because each works where another does not:

1. The fork server reads a connection whose other end only the launcher holds. When the launcher has
   ended, it kills every task's process group and leaves. This works for stopped tasks and for
   processes that a task has started, but not when the fork server itself has ended or is stopped.
2. `watch_launcher`: a thread in each task reads a pipe whose write end only the launcher holds. At
   the end of file the task kills its own process group. This works on every system, but not in a
   stopped task.
3. `die_with_parent`: the kernel sends a signal when the parent has ended (Linux only). This works
   in a stopped task, but reaches only the task's own process.

Nothing is ever written into the pipe of 2. Python opens the pipe's write end close-on-exec, and
tasks are forked from a process that never had the write end. So the write end is open exactly as
long as the launcher keeps it.
"""

from __future__ import annotations

import ctypes
import operator
import os
import pickle
import signal
import sys
import threading
import traceback

from tf1ps import links
from tf1ps.compat import EXIT_FAILED, remove_converted_files

# Variables of a task's environment.
TLS_VARIABLE = "TF1PS_TLS_DIR"  # the directory of certificates, for encrypted links
TITLE_VARIABLE = "TF1PS_TITLE"  # such as "tf1ps ps 0 digits"
_PR_SET_PDEATHSIG = 1


def prepare_streams():
  """Prepares Python's streams for pipes, because their descriptors become pipes in the tasks.

  The fork server calls this: a stream that was opened on a file cannot be changed once its
  descriptor is a pipe, and modules that the fork server imports keep these objects for their logs.
  """
  for stream in (sys.stdout, sys.stderr):
    # Line buffering keeps the order of both streams; a name in any alphabet must not fail.
    stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def become_task(fork_server, launcher_pipe, output, env, payload):
  """Turns this process, just forked, into a task. Does not return.

  Args:
    fork_server: process id of the parent.
    launcher_pipe: file descriptor for `watch_launcher`.
    output: file descriptor of the pipe for stdout and stderr.
    env: dict of environment variables; None removes a variable.
    payload: pickle of (function, args).
  """
  code = EXIT_FAILED
  try:
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.setpgid(0, 0)
    if env.get(TITLE_VARIABLE):
      show_title(env[TITLE_VARIABLE])
    if env.get(TLS_VARIABLE):
      # Before there are threads, and before `die_with_parent`, which new credentials would undo.
      links.enter(env[TLS_VARIABLE])
    die_with_parent(fork_server)
    watch_launcher(launcher_pipe)
    code = call(_run, env, payload)
  except BaseException:
    traceback.print_exc()
  finally:
    remove_converted_files()  # the fork server has none
    os._exit(code)


def show_title(title: str) -> None:
  """Makes ps and top show a title instead of this process's command line."""
  # Without this variable, setproctitle would overwrite the environment that /proc shows.
  os.environ["SPT_NOENV"] = "1"
  try:
    import setproctitle
    setproctitle.setproctitle(title)
  except ImportError:
    pass  # setproctitle is optional: a task runs without it
  finally:
    del os.environ["SPT_NOENV"]


def call(function, *args) -> int:
  """Calls a function as Python calls a script: prints its error, and flushes the streams.

  Returns:
    The exit code: the function's result, or the code of its SystemExit; None counts as 0.
  """
  try:
    return _exit_code(function(*args))
  except SystemExit as error:
    if error.code is None or isinstance(error.code, int):
      return (error.code or 0) & 0xFF  # as the interpreter does
    sys.stderr.write("%s\n" % (error.code,))
    return EXIT_FAILED
  except BaseException as error:
    _print_traceback(error)
    return EXIT_FAILED
  finally:
    flush()


def _print_traceback(error):
  """Prints the traceback from the task's own function on, without the calls of this file."""
  frames = error.__traceback__
  while frames.tb_next is not None and frames.tb_frame.f_code.co_filename == __file__:
    frames = frames.tb_next
  traceback.print_exception(type(error), error, frames)


def _run(env, payload):
  reset_inherited()
  for name, value in env.items():
    if value is None:
      os.environ.pop(name, None)
    else:
      os.environ[name] = value
  function, args = pickle.loads(payload)
  return function(*args)


def reset_inherited():
  """Gives this process its own signals and random numbers."""
  signal.set_wakeup_fd(-1)  # the parent's descriptor would report this process's signals to it
  # A shell starts background commands with SIGINT ignored.
  signal.signal(signal.SIGINT, signal.default_int_handler)
  signal.signal(signal.SIGTERM, signal.SIG_DFL)
  if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # as nohup arranges
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
  signal.pthread_sigmask(signal.SIG_SETMASK, [])
  if "numpy" in sys.modules:
    # Otherwise all tasks would draw the same numbers; Python's `random` reseeds itself.
    sys.modules["numpy"].random.seed()


def _exit_code(result):
  code = 0 if result is None else operator.index(result)
  if not 0 <= code <= 255:
    raise ValueError("a task must return an exit code of 0 to 255, got %d" % code)
  return code


def flush():
  """Writes out the buffers of Python's and C's streams."""
  for stream in (sys.stdout, sys.stderr):
    try:
      stream.flush()
    except (OSError, ValueError):
      pass  # the stream or the pipe's other end is closed
  ctypes.CDLL(None).fflush(None)


def watch_launcher(read_end: int) -> threading.Thread:
  """Kills this process's group with SIGKILL once the pipe's write end is closed everywhere.

  Any number of processes may read the same `read_end`, a file descriptor: none of them gets a byte,
  all of them get the end of file. Returns the started daemon thread that waits.
  """
  thread = threading.Thread(target=_kill_group_at_end, args=(read_end,), name="tf1ps: launcher",
                            daemon=True)
  thread.start()
  return thread


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
  """Asks the kernel to send this process a signal when its parent has ended. Linux only.

  For Linux the parent is the *thread* that forked this process, so that thread must live as long as
  the parent process. If the parent has already ended, the signal is sent immediately. A later call
  replaces the signal.
  """
  if not sys.platform.startswith("linux"):
    return
  libc = ctypes.CDLL(None, use_errno=True)
  if libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0):
    error = ctypes.get_errno()
    raise OSError(error, "prctl(PR_SET_PDEATHSIG): %s" % os.strerror(error))
  if os.getppid() != parent:
    os.kill(os.getpid(), number)


def _kill_group_at_end(read_end):
  while os.read(read_end, 1):
    pass
  os.killpg(os.getpgrp(), signal.SIGKILL)
