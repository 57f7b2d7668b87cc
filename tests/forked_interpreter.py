"""Spares the launchers of tests an import of TensorFlow, which takes longer than their whole job.

tf1ps-local starts an interpreter, which imports TensorFlow and forks the tasks (fork_server.py).
Where the launcher is itself forked from a process that has imported it:

1. `prepare` forks a process, before the launcher has done anything, which waits.
2. What the launcher starts as an interpreter is that process: it is sent the code, the environment
   and the descriptors, and runs the code.

Interpreters of their own are what tests/launch, the quick start and README's commands start.
"""
from __future__ import annotations

import fcntl
import multiprocessing
import multiprocessing.reduction
import os
import signal
import subprocess
import sys
import traceback
import types

from tests import harness
from tf1ps.launch import fork_server, task_main


def prepare():
  """Has this process's next `ForkServer` be a fork of it; to be called before it has threads."""
  near, far = multiprocessing.Pipe()
  pid = os.fork()
  if not pid:
    near.close()
    _wait_and_run(far)
  far.close()
  fork_server.subprocess = types.SimpleNamespace(
    Popen=lambda command, **how: _Interpreter(pid, near, command, **how),
    DEVNULL=subprocess.DEVNULL, TimeoutExpired=subprocess.TimeoutExpired)


class _Interpreter(object):
  """As much of a `subprocess.Popen` as a `ForkServer` uses."""

  def __init__(self, pid, connection, command, stdin, start_new_session, pass_fds):
    assert command[:2] == [sys.executable, "-c"] and start_new_session
    assert stdin == subprocess.DEVNULL
    self.pid = pid
    self._has_ended = False
    connection.send((command[2], dict(os.environ), pass_fds))
    for descriptor in pass_fds:
      multiprocessing.reduction.send_handle(connection, descriptor, pid)

  def send_signal(self, number):
    if not self._has_ended:
      os.kill(self.pid, number)

  def kill(self):
    self.send_signal(signal.SIGKILL)

  def wait(self, limit):
    if not self._has_ended:
      try:
        harness.wait_until(lambda: os.waitpid(self.pid, os.WNOHANG)[0], limit)
      except AssertionError as error:
        raise subprocess.TimeoutExpired("a fork server", limit) from error
      self._has_ended = True


def _wait_and_run(connection):
  """What the forked process does; it leaves from here, at the latest when the launcher does."""
  try:
    code, environ, descriptors = connection.recv()
    received = [multiprocessing.reduction.recv_handle(connection) for _ in descriptors]
    connection.close()
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # To where the code looks for them; first out of the way, as one may be in another one's place.
    received = [fcntl.fcntl(one, fcntl.F_DUPFD, 1000) for one in received]
    for one, wanted in zip(received, descriptors):
      os.dup2(one, wanted)
      os.close(one)
    os.environ.clear()
    os.environ.update(environ)
    task_main.prepare_streams = lambda: None  # they were, and can be no second time
    exec(code, {})
  except EOFError:
    pass  # the launcher has ended without it
  except BaseException:
    traceback.print_exc()
  finally:
    os._exit(0)
