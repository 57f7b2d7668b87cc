"""Waits for other tasks at a session's start: each wait has a limit, and names the tasks.

A worker waits for its chief in `await_chief`. A `local_init_op` may wait, too: in some programs it
dequeues a token of every other worker. `run_local_init_op` runs this operation within limits.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Callable, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LimitExceeded, TaskUnavailableError, call_within, probe_tasks
from tf1ps.compat import TIMING, poll_pause
from tf1ps.graph import needed_ops
from tf1ps.session import initialise
from tf1ps.session import membership as membership_lib
from tf1ps.state import Member

_log = logging.getLogger("tf1ps")


def await_chief(membership: membership_lib.Membership, look: Callable[[], Any],
                start_timeout: float, max_wait_secs: float, check: Callable[[], None]) -> Any:
  """Waits until `look` returns a true value, and returns that value.

  Args:
    membership: the membership of a task that is not the chief.
    look: returns a true value once the chief has done its part of the start.
    start_timeout: seconds without a sign of the chief.
    max_wait_secs: seconds that a live chief may take.
    check: called in each iteration; may raise.

  Raises:
    TaskUnavailableError: the chief has sent no heartbeat for `start_timeout` seconds.
    SessionTimeoutError: a live chief has taken longer than `max_wait_secs` seconds.
  """
  chief = membership.cluster.chief
  began = last_sign = time.monotonic()
  said, ended = 0.0, None  # the time of the last message; the process whose end was logged
  while True:
    result = look()
    if result:
      return result
    now = time.monotonic()
    member = membership.watch.chief()
    has_ended = member is not None and member.has_ended
    if member is not None and not has_ended and member.age < TIMING.alive_within:
      last_sign = now
    if now - last_sign > start_timeout:
      raise TaskUnavailableError(
        probe_tasks([chief]), now - began,
        "the chief %s, and no new process of it has come" % member.say_end(False) if has_ended
        else "the chief has initialised no run")
    if now - began > max_wait_secs:
      raise initialise.SessionTimeoutError(
        max_wait_secs, "%s has not initialised the run. Read its log" % chief.name)
    if has_ended and member.process != ended:
      ended = member.process
      _log.warning("the chief %s at %s %s. This task waits %g s for its restart",
                   chief.name, chief.address, member.say_end(False), start_timeout)
    elif not has_ended and now - began > TIMING.first_report and (
        now - said > TIMING.reminder_interval):
      said = now
      _log.warning("waiting for the chief %s at %s to initialise (it %s)", chief.name,
                   chief.address, "has not come" if member is None else "is %s" % member.state)
    check()
    time.sleep(poll_pause(now - began))


def run_local_init_op(session, operation, membership: membership_lib.Membership,
                      start_timeout: float, max_wait_secs: float,
                      interrupted: Callable[[], None]) -> None:
  """Runs the `local_init_op` of a scaffold.

  Args:
    session: the session.
    operation: the `local_init_op`, in any form that `tf.Session.run` takes.
    membership: this task's membership of the run.
    start_timeout: seconds that another worker may be absent if the operation dequeues elements.
    max_wait_secs: seconds that the operation may take in all.
    interrupted: called in the wait; raises when the wait must end.

  Raises:
    SessionCreationError: the operation exceeded a limit. For the limit `max_wait_secs`, the error
      is a SessionTimeoutError.
  """
  began, waits = time.monotonic(), _takes_from_queue(operation)
  present = began  # the last moment at which no needed worker was absent
  absent: List[str] = []

  def goes_on():
    nonlocal present, absent
    interrupted()
    now, absent = time.monotonic(), _absent_workers(membership) if waits else []
    if not absent:
      present = now
    _log.warning("the local_init_op has run for %.0f s%s", now - began,
                 ": it waits for %s" % "; ".join(absent) if absent else "")
    return now - present < start_timeout and now - began < max_wait_secs

  try:
    call_within(min(TIMING.reminder_interval, start_timeout), "the local_init_op",
                session.run, operation, extend=goes_on)
  except LimitExceeded as error:
    if not absent:
      raise initialise.SessionTimeoutError(
        max_wait_secs, "the local_init_op has not ended") from error
    raise initialise.SessionCreationError(
      "the local_init_op has not ended within %.0f s, because it waits for other workers: %s" % (
        time.monotonic() - began, "; ".join(absent))) from error


def _takes_from_queue(operation) -> bool:
  roots = [getattr(leaf, "op", leaf) for leaf in tf.nest.flatten(operation)]
  return any(op.type.startswith("QueueDequeue") for op in needed_ops(roots))


def _absent_workers(membership: membership_lib.Membership) -> List[str]:
  """Returns a text for each other worker that is absent: its name, and how it ended."""
  members = {(member.job, member.index): member for member in membership.members()}
  absent = []
  for task in membership.cluster.replicas:
    member: Optional[Member] = members.get((task.job, task.index))
    if task.name == membership.cluster.task.name:
      continue
    end = "has not come"
    if member is not None:
      end = member.say_end(membership.heartbeat.is_lost(member))
    if end:
      absent.append("%s %s" % (task.name, end))
  return absent
