"""A process that dies with the one it works for, however that one died.

Three ropes, because each of them holds where another does not:

1. The fork server reads a connection whose other end only the launcher holds. When the launcher
   is gone, it kills every task's process group and leaves. It holds for stopped tasks and for
   what a task has started, but not when the fork server itself is gone or stopped.
2. `watch`: a thread in each task reads a pipe whose write end only the launcher holds. End of
   file: the task kills its own process group. It holds on every system, but not in a stopped task.
3. `die_with_parent`: the kernel sends a signal when the parent is gone (Linux only). It holds in
   a stopped task, but reaches that one process alone.

Nothing is ever written into the pipe of 2. Its write end is closed on exec, as Python opens every
file descriptor, and tasks are forked from a process that never had it: so it is open exactly as
long as the launcher wants it to be, or lives.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1


def watch(read_end: int) -> threading.Thread:
  """Kills this process's group with SIGKILL once the pipe's write end is closed everywhere.

  Args:
    read_end: file descriptor. Any number of processes may read the same one: none of them ever
      gets a byte, all of them get the end of file.

  Returns:
    The daemon thread that waits, already started. It ends with the process.
  """
  thread = threading.Thread(target=_kill_group_at_end, args=(read_end,), name="lifeline",
                            daemon=True)
  thread.start()
  return thread


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
  """Asks the kernel to send this process a signal when its parent is gone. Linux only.

  The parent is the *thread* that forked this process, as Linux counts: it must be one that lives
  as long as its process.

  Args:
    parent: process id of the parent. One that is gone already counts as gone now.
    number: the signal; a later call replaces it.
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
