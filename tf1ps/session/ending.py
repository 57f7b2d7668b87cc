"""The end of a job: each task reports its end, and the chief waits for the other workers.

A table in state/heartbeat.py lists all kinds of end. The states of a worker that does its part, the
control records that show each state, and the call that leads to the next state:

  state     the records           next state
  training  its heartbeat         reported: `report`, in each heartbeat from here on
  reported  its report, unless a  heard: `read`, by a heartbeat of the chief, which remembers it;
            ps was lost with it   training: `restart`
  heard     its process, in the   left: `beat`, which reads that record; training: `restart`;
            chief's heartbeat     reported: `restart_chief`
  left      may be lost           training: `restart`

A process that finds the report of its task's earlier process repeats the report. The chief also
writes the names of the workers that have done their part into the run's status file. So if a worker
leaves and a ps is then lost with the worker's report, the chief's next process still knows that the
worker has done its part.

The chief waits until each other worker has reported, has failed, is lost, never joined, or has made
no step for `end_timeout` seconds. The limit starts again whenever a missing worker makes a step.
After a worker reports a failure, the chief waits `heartbeat_timeout` seconds for a new process of
that worker before it counts the worker as failed.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, List, Optional

from tf1ps.cluster import TaskUnavailableError
from tf1ps.compat import ENDED_BY_SIGNAL, TIMING, Error, error_line, own_identity
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


class TaskLostError(Error, RuntimeError):
  """A task that the session needs has been silent for too long."""


def report_part(membership: membership_lib.Membership, problems: List[str]) -> None:
  """Reports that this task has done its part; a chief releases the ps before its report.

  `problems` has a sentence for each other worker that did not do its part.
  """
  text = "; ".join(problems)
  if membership.is_chief:
    membership.release(failed=bool(problems), reason=text)
  membership.report(MEMBER_FAILED if problems else MEMBER_DONE, text)


def report_error(membership: membership_lib.Membership, error: BaseException) -> str:
  """Reports the error that has ended this task; returns the reason that other tasks read."""
  reason = "%s: %s" % (type(error).__name__, error_line(error))
  if isinstance(error, SystemExit):
    reason = "the program ended Python with %r" % (error.code,)
  # The lost task may be the task that keeps the reports, so the limit is short.
  is_lost = isinstance(error, (TaskLostError, TaskUnavailableError))
  membership.report(MEMBER_FAILED, reason, limit=TIMING.report_limit_after_loss if is_lost
                    else TIMING.report_limit_after_failure)
  return reason


def report_signal(membership: membership_lib.Membership, signum: int) -> None:
  """Reports the signal that has ended this task."""
  membership.report(MEMBER_FAILED, ENDED_BY_SIGNAL + str(signum),
                    limit=TIMING.report_limit_after_signal)


def wait_for_workers(membership: membership_lib.Membership, end_timeout: float,
                     each_round: Callable[[], None], expects_all: bool = True) -> List[str]:
  """Waits until every other worker of the run has ended.

  Args:
    membership: the chief's membership of the run.
    end_timeout: seconds without a step of any missing worker until the wait ends.
    each_round: called in each iteration of the wait; may raise.
    expects_all: whether a worker that never joined counts as a worker that did not do its part.

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
              or "%s has made no step for %.0f s (end_timeout)" % (task.name, end_timeout)
              for task in others if ends[task] != ""]
    if now - said > TIMING.reminder_interval:
      _log.log(logging.WARNING if said == began else logging.INFO, "waiting for %s",
               ", ".join(_progress(task, members) for task in missing))
      said = now
    time.sleep(TIMING.poll_interval)


def _end_of(membership, task, member: Optional[Member], waited: float) -> Optional[str]:
  """Returns "" after a worker's part, a sentence about its failure, or None before its end."""
  if member is None or member.run not in ("", membership.run_id):
    if membership.had_done_its_part(task, member):
      return ""
    # A heartbeat from another run says nothing about this run.
    return _absence(task) if waited > membership.heartbeat_timeout else None
  if member.state in (MEMBER_DONE, MEMBER_SERVING):
    return ""
  if member.state == MEMBER_FAILED and (
      member.age <= membership.heartbeat_timeout and member.process != own_identity()):
    return None  # a scheduler may start the worker again, unless it runs in this process
  end = member.say_end(membership.heartbeat.is_lost(member))
  return "%s %s" % (member.name, end) if end else None


def _failure(member: Optional[Member]) -> str:
  is_failed = member is not None and member.state == MEMBER_FAILED
  return "%s %s" % (member.name, member.say_end(False)) if is_failed else ""


def _say_failures(membership, missing, said: set) -> None:
  """Logs, once per failed process, that the chief waits for the worker's next process."""
  for member in missing:
    if member is not None and member.state == MEMBER_FAILED and member.process not in said:
      said.add(member.process)
      _log.warning("%s. The chief waits %g s (--heartbeat_timeout) for its restart",
                   _failure(member), membership.heartbeat_timeout)


def _problems(others, ends: Dict, expects_all: bool) -> List[str]:
  problems = []
  for task in others:
    if ends[task] == _absence(task) and not expects_all:
      _log.warning("%s, and the run ends without it", ends[task])
    elif ends[task]:
      problems.append(ends[task])
  return problems


def _absence(task) -> str:
  return "%s never joined" % task.name


def _signs(missing, members: Dict) -> list:
  last = [members.get((task.job, task.index)) for task in missing]
  return [(m.process, m.state, m.step, m.examples) if m else None for m in last]


def _progress(task, members: Dict) -> str:
  member = members.get((task.job, task.index))
  if member is None:
    return "%s (not seen yet)" % task.name
  return "%s (%s, %d steps)" % (task.name, member.state, member.step)
