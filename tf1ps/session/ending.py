"""The end of a job: the chief waits for the other workers, with limits, and names the missing ones.

A worker that has done its part reports it, and leaves when the chief has read that. The chief waits
until each other worker has reported, has failed, is lost, never joined, or has made no step for
`end_timeout` seconds. The limit starts again whenever a missing worker makes a step. A worker that
has failed may be started again: it counts as failed when no process of it has come for
`heartbeat_timeout` seconds. The result decides the last lines and the exit code.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Callable, Dict, List, Optional

from tf1ps.compat import TIMING, Error
from tf1ps.session import membership as membership_lib
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED, MEMBER_SERVING, Member

_log = logging.getLogger("tf1ps")


class JobFailedError(Error, RuntimeError):
  """This task did its part, but another task of the job failed or is lost.

  Attributes:
    outcome: this task's `training.Outcome`; None if the program has its own loop.
  """

  def __init__(self, problems: List[str], outcome=None):
    text = "; ".join(problems)
    super().__init__(text if outcome is not None else "the job failed: " + text)
    self.outcome = outcome


def wait_for_workers(membership: membership_lib.Membership, end_timeout: float,
                     each_round: Callable[[], None], expects_all: bool = True) -> List[str]:
  """Waits until every other worker of the run has ended.

  Args:
    membership: the chief's membership of the run.
    end_timeout: seconds without a step of any missing worker until the wait ends.
    each_round: called in each iteration of the wait; may raise.
    expects_all: whether a worker that never joined did not do its part.

  Returns:
    A sentence for each worker that did not do its part.
  """
  own = membership.cluster.task.name
  others = [task for task in membership.cluster.replicas if task.name != own]
  membership.heartbeat.hasten()
  began = moved = said = time.monotonic()
  before, failures = None, set()
  while True:
    each_round()
    now = time.monotonic()
    members = {(m.job, m.index): m for m in membership.members()}
    ends = {task: _end_of(membership, task, members.get((task.job, task.index)), now - began)
            for task in others}
    missing = [task for task in others if ends[task] is None]
    _say_failures(membership, [members.get((task.job, task.index)) for task in missing], failures)
    if not missing:
      return _problems(others, ends, expects_all)
    signs = _signs(missing, members)
    if signs != before:
      before, moved = signs, now
    if now - moved > end_timeout:
      return [ends[task] or _failure(members.get((task.job, task.index)))
              or "%s has made no step for %.0f s (--end_timeout)" % (task.name, end_timeout)
              for task in others if ends[task] != ""]
    if now - said > TIMING.reminder_interval:
      _log.log(logging.WARNING if said == began else logging.INFO, "waiting for %s",
               ", ".join(_progress(task, members) for task in missing))
      said = now
    time.sleep(TIMING.poll_interval)


def _end_of(membership, task, member: Optional[Member], waited: float) -> Optional[str]:
  """Returns "" for a worker that did its part, a sentence for a failure, None before its end."""
  if member is not None and member.state == MEMBER_FAILED and member.run in ("", membership.run_id):
    # A scheduler may start it again, unless it is a part of this process.
    waits = member.age <= membership.heartbeat_timeout and member.pid != os.getpid()
    return None if waits else _failure(member)
  if member is None or member.run not in ("", membership.run_id):
    # A heartbeat of an earlier run says nothing about this run.
    return _absence(task) if waited > membership.heartbeat_timeout else None
  if member.state in (MEMBER_DONE, MEMBER_SERVING):
    return ""
  if membership.heartbeat.is_lost(member):
    return "%s is lost: silent for %.0f s, last seen at global step %d" % (
      member.name, member.age, member.global_step)
  return None


def _failure(member: Optional[Member]) -> str:
  is_failed = member is not None and member.state == MEMBER_FAILED
  return "%s failed: %s" % (member.name, member.reason) if is_failed else ""


def _say_failures(membership, missing, said: set) -> None:
  """Says once of each process that the wait goes on for a new process of a worker that failed."""
  for member in missing:
    if member is not None and member.state == MEMBER_FAILED and member.pid not in said:
      said.add(member.pid)
      _log.warning("%s failed: %s. The chief waits %g s (--heartbeat_timeout) for its restart",
                   member.name, member.reason, membership.heartbeat_timeout)


def _problems(others, ends: Dict, expects_all: bool) -> List[str]:
  found = []
  for task in others:
    if ends[task] == _absence(task) and not expects_all:
      _log.warning("%s, and the run ends without it", ends[task])
    elif ends[task]:
      found.append(ends[task])
  return found


def _absence(task) -> str:
  return "%s never joined" % task.name


def _signs(missing, members: Dict) -> list:
  found = [members.get((task.job, task.index)) for task in missing]
  return [(m.pid, m.state, m.step, m.examples) if m else None for m in found]


def _progress(task, members: Dict) -> str:
  member = members.get((task.job, task.index))
  if member is None:
    return "%s (not seen yet)" % task.name
  return "%s (%s, %d steps)" % (task.name, member.state, member.step)
