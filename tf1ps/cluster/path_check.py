"""The path check: worker -> ps -> worker, proved once before training.

A probe asks each server about itself, so it cannot detect that two tasks were started with
different clusters. A ps whose cluster lacks this worker, or has another address for it, answers
reads but fails at the first update, because a ps fetches its inputs *from* the worker. So before
training, this task sends a number to each ps and back, in a session that is closed within a limit.
"""

from __future__ import annotations

import logging
import random
import time

import tensorflow.compat.v1 as tf

from tf1ps.cluster.bounded import LimitExceeded, call_within
from tf1ps.cluster.held_task import check_not_held
from tf1ps.cluster.session import BoundedSession
from tf1ps.cluster.session_config import without_placement_log
from tf1ps.compat import RETRIES, TIMING, Error, error_causes, error_line

_log = logging.getLogger("tf1ps")
# A server's error about a task that its cluster lacks. A retry does not help.
_UNKNOWN = "No worker known as"


class PathError(Error, RuntimeError):
  """A ps answers the probe but cannot exchange tensors with this task."""


def check_paths(target: str, own_task, tasks, config, timeout: float) -> None:
  """Sends a number from this task to each of the other tasks and back.

  Args:
    target: the session target of this task's server.
    own_task: this task.
    tasks: the tasks at the other ends of the paths, usually the ps.
    config: a `tf.ConfigProto` whose device filters show all these tasks and this task.
    timeout: seconds for all paths together.

  Raises:
    PathError: a path fails; the error names the task, its address and TensorFlow's error.
    TaskHeldError: another server answers at the address of this task.
  """
  others = [task for task in tasks if task.name != own_task.name]
  deadline = time.monotonic() + timeout
  for task in others:
    _check(target, own_task, task, config, deadline)


def _check(target, own_task, task, config, deadline):
  graph, sent, back = _round_trip(own_task.name, task.name)
  number = random.random()
  error = logged = None
  while True:
    limit = min(TIMING.round_trip_limit, deadline - time.monotonic())
    if limit <= 0:
      raise PathError(_sentence(own_task, task, error))
    session = None
    try:
      session = BoundedSession(
        target, graph, without_placement_log(config), TIMING.run_session_close_limit)
      options = tf.RunOptions(timeout_in_ms=int(1000 * limit))
      value = call_within(
        limit + TIMING.call_grace, "sending a number to %s and back" % task.name,
        tf.Session.run, session, back, {sent: number}, options,
      )
      if value != number + 2:
        raise PathError("%s answered %r to %r" % (task.name, value, number))
      return
    except RETRIES.path.errors + (LimitExceeded,) as problem:
      error, line = problem, error_line(problem)
      if isinstance(problem, tf.errors.InvalidArgumentError) or any(
          cause.startswith(_UNKNOWN) for cause in error_causes(problem)):
        raise PathError(_sentence(own_task, task, error)) from problem
      if line != logged:
        _log.warning("the path to %s and back fails: %s", task.name, line)
        logged = line
    finally:
      if session is not None:
        if error is not None:
          session.abort(lambda: tf.errors.CancelledError(None, None, "path check"))
        session.close()
    time.sleep(max(0.0, min(next(RETRIES.path.pauses()), deadline - time.monotonic())))
    # The reason may be that another process has taken this task's address.
    check_not_held(own_task, target, TIMING.watch_probe_limit)


def _round_trip(own: str, other: str):
  graph = tf.Graph()
  with graph.as_default():
    with tf.device(own):
      sent = tf.placeholder(tf.float64, [], name="sent")
      here = tf.identity(sent, name="here")
    with tf.device(other):
      there = tf.add(here, 1.0, name="there")
    with tf.device(own):
      back = tf.add(there, 1.0, name="back")
  return graph, sent, back


def _sentence(own_task, task, error) -> str:
  reason = "no answer in time" if error is None else error_line(error)
  return (
    "%s at %s answers, but no tensor gets from %s to it and back (%s). Start it with the same "
    "cluster: it must know %s at %s." % (
      task.name, task.address, own_task.name, reason, own_task.name, own_task.address)
  )
