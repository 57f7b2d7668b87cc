"""Tells a process from every other process, on this machine and on others.

A host name and a process id do not: containers on their host's network share its name, and in each
of them the first process has the id 1. An identity is a text of five parts, with "-" between them:

  process id, start time in clock ticks since the boot, PID namespace, boot id, host name

`has_ended` compares identities. It looks for a process only in its own PID namespace: another
namespace has other processes under the same ids.
"""

from __future__ import annotations

import functools
import os
import socket
from typing import Optional

_BOOT_DIGITS = 12  # of the random boot id


def own_identity() -> str:
  """Returns the identity of this process, which is also a part of a file's name."""
  return _identity(os.getpid(), socket.gethostname())


def has_ended(identity: str) -> bool:
  """Whether a process is known to have ended.

  False does not mean that it lives: this process cannot look into another PID namespace, another
  machine, or a time before the last boot.
  """
  there, here = identity.split("-", 2), own_identity().split("-", 2)
  if len(there) < 3 or there[2] != here[2] or not there[0].isdigit():
    return False
  if "" in there[2].split("-", 2):  # of NAMESPACE-BOOT-HOST: two worlds could share the rest
    return False
  try:
    os.kill(int(there[0]), 0)
  except ProcessLookupError:
    return True
  except (OSError, OverflowError):  # another user's process
    pass
  start = _start_of(int(there[0]))
  return None not in (start, _start_of(os.getpid())) and start != there[1]


@functools.lru_cache(maxsize=1)  # a forked process has another id
def _identity(process: int, host: str) -> str:
  return "%d-%s-%s-%s-%s" % (process, _start_of(process) or "", _namespace(), _boot(), host)


def _namespace() -> str:
  try:
    return os.readlink("/proc/self/ns/pid").strip("pid:[]")
  except OSError:  # no /proc, or no such file in it
    return ""


def _boot() -> str:
  try:
    with open("/proc/sys/kernel/random/boot_id") as file:
      return file.read().replace("-", "").strip()[:_BOOT_DIGITS]
  except OSError:
    return ""


def _start_of(process: int) -> Optional[str]:
  """Returns the start time of a process, or None if /proc does not show it.

  In a PID namespace without a /proc of its own, /proc shows the processes of another namespace.
  """
  try:
    if os.readlink("/proc/self") != str(os.getpid()):
      return None
    with open("/proc/%d/stat" % process, "rb") as file:
      return file.read().rpartition(b")")[2].split()[19].decode("ascii")
  except (OSError, IndexError):
    return None
