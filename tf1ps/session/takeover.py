"""A chief that finds another run's living members on the ps takes that run over, or is refused.

A returning chief does not know its run if its checkpoint directory is lost, is on a disk that is
not shared, or has a damaged status file. The workers still train that run, so nothing is cleared:

1. `find_living` waits for a heartbeat of a member. Until the heartbeat timeout, a paused process
   and a killed process look alike.
2. `check` raises LivingRunError if the run has another graph, if its own chief lives, or if this
   chief's directory differs from the run's and has checkpoints or steps of another run. Else the
   chief continues the living run, and writes a new status file.

The states of the run whose record the ps keep, as a starting chief may find them (`adopt`):

  state        the record            next state
  none         (none)                begun: `begin`, with a new id
  begun        initialised=False     initialised: `mark`; begun: `begin`, with the same id if the
                                     directory names it; none: `lose`
  initialised  initialised=True      begun: `begin`, unless a member lives: then the chief keeps the
                                     run, or is refused; ended: `release`; none: `lose`
  ended        ended=True            begun: `begin`, with a new id; none: `lose`

A chief whose directory names the run on the ps keeps the run. `lose`: a ps is started again. Two
chiefs that begin a run at the same moment do not see each other.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from typing import Callable, Dict, List, Optional

from tf1ps.checkpoint import latest_checkpoint
from tf1ps.compat import TIMING, Error
from tf1ps.session.run_directory import RunDirectory
from tf1ps.state import ControlRecord, Heartbeat, Member, RunRecord, members_of

_log = logging.getLogger("tf1ps")


class LivingRunError(Error, RuntimeError):
  """Living tasks train another run on the ps, and this chief can neither clear nor continue it."""


def place_of(checkpoint_dir: Optional[str]) -> str:
  """Returns a directory's name as the record of a run has it."""
  if not checkpoint_dir or "://" in checkpoint_dir:
    return checkpoint_dir or ""
  return os.path.abspath(checkpoint_dir)


def inode_of(checkpoint_dir: Optional[str]) -> str:
  """Returns the file system, the device and the inode of a directory; "" if it cannot be read.

  The roots of two disks often have the same inode, and a new disk may get an old disk's device.
  """
  try:
    status = os.stat(checkpoint_dir or "")
    return "%d:%d:%d" % (os.statvfs(checkpoint_dir).f_fsid, status.st_dev, status.st_ino)
  except OSError:
    return ""


def find_living(heartbeat: Heartbeat, read: Callable[[], Dict[str, ControlRecord]], container: str,
                runs: List[str], limit: float, interrupted: Callable[[], None]) -> Optional[Member]:
  """Returns a member of one of the runs that sends a heartbeat during this call, or None.

  A living chief comes before other members.

  Args:
    heartbeat: this task's heartbeat, sent at least once.
    read: reads the control records; raises ControlError.
    container: the container of the job.
    runs: the ids of the runs.
    limit: seconds of silence until a member is lost.
    interrupted: called in the wait; raises when the wait must end.
  """
  own, previous = heartbeat.own(), heartbeat.previous
  until = time.monotonic()
  if previous is not None and _trains(previous, runs) and previous.age < TIMING.alive_within:
    # Another chief with this task's name is visible only between two heartbeats of this process.
    until += 3 * TIMING.heartbeat_interval
  ages: Dict[str, float] = {}
  living, said = None, False
  while True:
    looked = time.monotonic()
    members = [m for m in members_of(read(), container) if _trains(m, runs) and m.age < limit
               and (m.name, m.process) != (own.name, own.process)]
    for member in members:
      if member.name == own.name:
        return member
      if member.age < ages.get(member.name, 0.0):
        living = member
      ages[member.name] = member.age
    if (living or not members) and looked > until:
      return living
    if members and not said:
      said = True
      _log.info("looking whether %s (process %d on %s) still trains run %s",
                members[0].name, members[0].pid, members[0].host, members[0].run)
    interrupted()
    time.sleep(TIMING.fast_poll_interval)


def _trains(member: Member, runs: List[str]) -> bool:
  return member.role != "ps" and member.run in runs and not member.has_ended


def check(living: RunRecord, member: Member, signature: List[list], own_run: str,
          directory: Optional[RunDirectory]) -> None:
  """Raises LivingRunError if this chief cannot take over the run of a living member.

  Args:
    living: the record of that run.
    member: a living member of that run.
    signature: the variables of this chief's graph.
    own_run: the id of the run that this process has begun, or "".
    directory: this chief's checkpoint directory, or None.
  """
  name = "" if directory is None else directory.name
  # On another machine, or in another Linux container, the same path may be another directory.
  is_same = place_of(name) == living.directory and ("://" in name or (
    living.host == socket.gethostname() and living.inode in ("", inode_of(name))))
  if own_run:
    reason = "it is the chief of run %s" % own_run
  elif living.initialised and living.signature != signature:
    reason = "its graph has other variables"
  elif member.role == "chief":
    reason = "the run has a chief that lives"
  elif directory is not None and not is_same and directory.other_run(living.id):
    reason = "its directory has run %s" % directory.other_run(living.id)
  elif name and place_of(name) != living.directory and latest_checkpoint(name):
    reason = "its directory has checkpoints of another run"
  else:
    return
  raise LivingRunError(
    "%s (process %d on %s) trains run %s on the ps, whose chief on %s saves into %s. The chief "
    "here, on %s with the checkpoint directory %s, cannot go on with that run: %s. End that job, "
    "or give this job another --container." % (
      member.name, member.pid, member.host, living.id, living.host or "an unknown host",
      living.directory or "no directory", socket.gethostname(), place_of(name) or "none", reason))
