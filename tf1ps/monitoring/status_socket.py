"""Answers tf1ps-status and tf1ps-top on this machine, from a task that has TensorFlow already.

The import of TensorFlow takes seconds. So a task that keeps the records of a job listens at a
socket, in a directory that names the task's process. When a process of the same user asks at this
socket, the task asks its own server for the status. If no task answers, `ask_status` still works.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from typing import Iterator, Optional, Sequence

from tf1ps.compat import TIMING, find_directories, temporary_directory
from tf1ps.monitoring.job_status import Status, status_as_json, status_from_json

_PURPOSE, _FILE, _PLACE = "status", "socket", "place"
_LIMIT = 5.0  # seconds for a look at the ps
_ANSWER_LIMIT = 2 * _LIMIT  # seconds until a task must have answered
_QUESTION_LIMIT = 1.0  # seconds: the asking process sends the question immediately
_LONGEST = 1 << 20  # bytes of a question


@contextlib.contextmanager
def answer_here(address: str) -> Iterator[None]:
  """Answers `ask_here` from this process until the end of the block.

  Args:
    address: the address of this task's server in the cluster; "": the task does not answer.
  """
  with contextlib.ExitStack() as stack:
    with contextlib.suppress(OSError):  # no temporary directory can be written
      if address:
        folder = stack.enter_context(temporary_directory(_PURPOSE))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        with open(os.path.join(folder, _PLACE), "w", encoding="utf-8") as file:
          file.write(_place_of(address))
        with _short_path(folder) as path:
          listener.bind(path)
        listener.listen(5)
        stack.callback(_shut, listener)  # ends the thread
        threading.Thread(target=_answer, args=(listener, address), daemon=True,
                         name="tf1ps: status").start()
    yield


def ask_here(addresses: Sequence[str]) -> Optional[Status]:
  """Asks the tasks of this user on this machine for the status of a job.

  Args:
    addresses: the addresses of the job's tasks in its cluster.

  Returns:
    The `Status`; None if none of these tasks is on this machine, or none has answered.
  """
  places = set(map(_place_of, addresses))
  for folder in find_directories(_PURPOSE):
    with contextlib.suppress(OSError, ValueError), \
        open(os.path.join(folder, _PLACE), encoding="utf-8") as file:
      if file.read() not in places:
        continue
    with contextlib.suppress(OSError, ValueError, TypeError, LookupError), \
        socket.socket(socket.AF_UNIX) as asking:
      asking.settimeout(_ANSWER_LIMIT)
      with _short_path(folder) as path:
        asking.connect(path)
      asking.sendall((" ".join(addresses) + "\n").encode())
      with asking.makefile(encoding="utf-8") as answer:
        return status_from_json(answer.read())
  return None


def _answer(listener: socket.socket, address: str) -> None:
  from tf1ps.monitoring.status import ask_status

  while True:
    try:
      connection, _ = listener.accept()
    except OSError as error:
      if error.errno in (errno.EMFILE, errno.ENFILE):
        time.sleep(TIMING.poll_interval)
        continue
      return  # the listener was closed
    # Without an answer, the other process asks a ps itself, and reports what is wrong.
    with contextlib.suppress(Exception), connection:
      if address in _question(connection):
        connection.settimeout(_LIMIT)
        connection.sendall(status_as_json(ask_status([address], _LIMIT)).encode())


def _question(connection: socket.socket) -> Sequence[str]:
  until, line = time.monotonic() + _QUESTION_LIMIT, b""
  while not line.endswith(b"\n") and len(line) < _LONGEST:
    left = until - time.monotonic()
    if left <= 0:
      raise socket.timeout("a question takes too long")
    connection.settimeout(left)
    more = connection.recv(_LONGEST)
    if not more:
      break
    line += more
  return line.decode().split()


def _place_of(address: str) -> str:
  """Returns a task's address and network: containers with a common /tmp may share an address."""
  try:
    return "%s %s" % (address, os.readlink("/proc/self/ns/net"))
  except OSError:  # not on Linux
    return address


def _shut(listener: socket.socket) -> None:
  with contextlib.suppress(OSError):
    listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def _short_path(folder: str) -> Iterator[str]:
  """Yields a short path of a folder's socket, because a socket's path has at most 107 bytes."""
  opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
  try:
    yield "/proc/self/fd/%d/%s" % (opened, _FILE)
  finally:
    os.close(opened)
