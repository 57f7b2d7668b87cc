"""Worlds: what the tasks of a job, which run on one machine, share with each other.

Tasks in containers, in pods and on machines of their own share less than processes of one shell do.
`WORLDS` lists what the suites try. In a world with namespaces a task is two processes: that which
the run has started, and its child, the task itself: process 1 of a PID namespace with a /proc of
its own, as `unshare --pid --fork --mount-proc` makes it. The first process ends as the second does.
Namespaces take root, or they are not permitted at all: then `check` says why.
"""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import subprocess
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

_NEW_MOUNTS, _NEW_NAME, _NEW_PIDS = 0x00020000, 0x04000000, 0x20000000  # of unshare(2)
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000  # of mount(2)
_DIE_WITH_PARENT = 1  # of prctl(2)
_OWN_DISK = b"size=16m"  # of a task that does not see the chief's


class WorldError(RuntimeError):
  """A world cannot be made here."""


class World(NamedTuple):
  """What the tasks of a job share."""

  text: str
  is_apart: bool = True  # each task has a PID namespace and mounts of its own
  own_name: bool = False  # each task has a host name of its own, and each start a new one
  own_disk: bool = False  # only the chief and the evaluator see the checkpoint directory
  keeps: float = 0.0  # seconds for which a task keeps what it knows of the directory
  renames: bool = True  # whether the directory's file system has rename

  @property
  def is_served(self) -> bool:
    """Whether the directory lies on a file system of filesystem.py."""
    return bool(self.keeps) or not self.renames


WORLDS = {
  "one": World("one PID namespace, one host name", is_apart=False),
  "pids": World("a PID namespace for each task, one host name"),
  "hosts": World("a PID namespace and a host name for each task", own_name=True),
  "disks": World("as pids, and only the chief and the evaluator see the directory", own_disk=True),
  "late": World("as pids, and a task sees what others change in the directory up to 1 s late",
                keeps=1.0),
  "no_rename": World("as pids, and the directory's file system has no rename", renames=False),
}
# Every TensorFlow trains in these as in one world.
DRAWN = ("one", "pids", "hosts", "late")


def draw(seed: int) -> str:
  """Returns the world of a run with a seed."""
  return random.Random("%d world" % seed).choice(DRAWN)


class Place(NamedTuple):
  """What a task of a world has for itself; see `enter`."""

  host: str = ""  # its host name; "": the machine's
  directory: str = ""  # over which another disk lies; "": nowhere
  disk: str = ""  # the directory that lies there; "": an empty disk


class Made:
  """A world of one job: the place of each task."""

  def __init__(self, name: str, directory: str, folder: str, tasks: Sequence[str]):
    """Checks that the world can be made.

    Args:
      name: of WORLDS.
      directory: the checkpoint directory.
      folder: a directory for mounts.
      tasks: the names of the tasks.

    Raises:
      WorldError: it is not permitted here.
    """
    self.world = WORLDS[name]
    self._directory, self._starts = directory, dict.fromkeys(tasks, 0)
    self._views: Dict[str, str] = {}
    if self.world.is_apart:
      check()
    if self.world.is_served:
      self._views = {task: os.path.join(folder, "views", task.replace(" ", "-")) for task in tasks}
    self._ready = os.path.join(folder, "views are ready")

  def served(self) -> Optional[Tuple]:
    """Returns the arguments of `filesystem.serve`, for a process of the run; None needs none."""
    if not self._views:
      return None
    for view in self._views.values():
      os.makedirs(view)
    return (self._directory, list(self._views.values()), self.world.keeps, self.world.renames,
            self._ready)

  @property
  def is_ready(self) -> bool:
    """Whether the process that serves the directory is ready."""
    return os.path.exists(self._ready)

  def place(self, task: str, is_with_chief: bool, disk: str = "") -> Optional[Place]:
    """Returns the place for the next start of a task, or None.

    Args:
      task: its name.
      is_with_chief: whether it is on the chief's machine.
      disk: a directory that takes the checkpoint directory's place for this start.
    """
    if not self.world.is_apart:
      return None
    self._starts[task] += 1
    host = "%s-%d" % (task.replace(" ", "-"), self._starts[task]) if self.world.own_name else ""
    disk = disk or self._views.get(task, "")
    has_mount = disk or self.world.own_disk and not is_with_chief
    return Place(host, self._directory if has_mount else "", disk)

  def process(self, pid: int) -> int:
    """Returns the id of a task's own process, by the id of the process that was started for it."""
    if not self.world.is_apart:
      return pid
    try:
      with open("/proc/%d/task/%d/children" % (pid, pid)) as file:
        children = file.read().split()
    except OSError:  # it has ended
      return pid
    return int(children[0]) if children else pid

  def close(self) -> None:
    """Takes the mounts away; the tasks have ended."""
    for view in self._views.values():
      subprocess.run(["umount", "--lazy", view], stderr=subprocess.DEVNULL)


def check() -> None:
  """Raises WorldError if this process may not make namespaces."""
  if shutil.which("unshare") is None:
    raise WorldError("worlds of namespaces need unshare of util-linux")
  done = subprocess.run(["unshare", "--pid", "--uts", "--fork", "--mount-proc", "true"],
                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
  if done.returncode:
    raise WorldError("namespaces are not permitted: %s" % done.stdout.strip())


_started = 0  # the id of the process that the run has started, in its child


def process_id() -> int:
  """Returns the id under which the run knows this process."""
  return _started or os.getpid()


def enter(place: Optional[Place]) -> None:
  """Has what follows happen in a child that is process 1 of namespaces of its own.

  The caller's process does not return: it ends as the child does. None does nothing.
  """
  global _started
  if place is None:
    return
  _started = os.getpid()
  _call("unshare", _NEW_PIDS | _NEW_MOUNTS | (_NEW_NAME if place.host else 0))
  child = os.fork()
  if child:
    _end_as(child)
  _call("prctl", _DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
  _mount(None, "/", None, _RECURSIVE | _PRIVATE)
  _mount("proc", "/proc", "proc")
  if place.host:
    _call("sethostname", place.host.encode(), len(place.host))
  if place.disk:
    _mount(place.disk, place.directory, None, _BIND)
  elif place.directory:
    _mount("tf1ps", place.directory, "tmpfs", 0, _OWN_DISK)


def _end_as(child: int) -> None:
  _, status = os.waitpid(child, 0)
  if os.WIFSIGNALED(status):
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
      signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
  os._exit(os.WEXITSTATUS(status))


def _mount(source, target, kind, flags=0, data=None) -> None:
  names: List[Optional[bytes]] = [
    None if each is None else os.fsencode(each) for each in (source, target, kind)]
  _call("mount", *names, flags, data)


def _call(name, *args) -> None:
  """Calls a function of libc; raises OSError."""
  words = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in args]
  if getattr(ctypes.CDLL(None, use_errno=True), name)(*words):
    number = ctypes.get_errno()
    raise OSError(number, "%s: %s" % (name, os.strerror(number)))
