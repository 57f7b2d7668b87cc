"""The canary: the way worker -> ps -> worker, proved once before training.

A probe asks each server about itself; it cannot see that two tasks were told different clusters. A
ps whose cluster lacks this worker, or has another address for it, answers reads, and fails at the
first update, because a ps fetches what it needs *from* the worker. So, before training, a number
goes from this task to each ps and back, in a session that is given up after the limit.
"""

from __future__ import annotations

import logging
import random
import time

import tensorflow.compat.v1 as tf

from tf1ps.cluster import bounded
from tf1ps.cluster import session as session_lib
from tf1ps.compat import TIMING, Error, error_line

_log = logging.getLogger("tf1ps")
_UNKNOWN = "No worker known as"  # what a server says of a task that its cluster lacks, for ever


class PathError(Error, RuntimeError):
  """A ps that answers the probe, and cannot exchange tensors with this task."""


def prove_paths(target: str, own_task, tasks, config, timeout: float) -> None:
  """Sends a number from this task to each of the others and back.

  Args:
    target: the session target of this task's server.
    own_task: the `spec.Task` of this task.
    tasks: the tasks to prove the way to, usually the ps.
    config: a `tf.ConfigProto` whose device filters show all of them, and this task.
    timeout: seconds for all of them together.

  Raises:
    PathError: naming the task, its address and TensorFlow's error.
  """
  others = [task for task in tasks if task.name != own_task.name]
  deadline = time.monotonic() + timeout
  for task in others:
    _prove(target, own_task, task, config, deadline)


def _prove(target, own_task, task, config, deadline):
  graph, sent, back = _round_trip(own_task.name, task.name)
  number = random.random()
  error = said = None
  while True:
    limit = min(TIMING.round_trip_limit, deadline - time.monotonic())
    if limit <= 0:
      raise PathError(_sentence(own_task, task, error))
    session = None
    try:
      session = session_lib.BoundedSession(
        target, graph, config, TIMING.run_session_close_limit)
      options = tf.RunOptions(timeout_in_ms=int(1000 * limit))
      value = bounded.call_within(
        limit + TIMING.call_grace, "sending a number to %s and back" % task.name,
        tf.Session.run, session, back, {sent: number}, options,
      )
      if value != number + 2:
        raise PathError("%s answered %r to %r" % (task.name, value, number))
      return
    except (tf.errors.OpError, bounded.LimitExceeded) as problem:
      error, line = problem, error_line(problem)
      if isinstance(problem, tf.errors.InvalidArgumentError) or _UNKNOWN in str(problem):
        raise PathError(_sentence(own_task, task, error)) from problem
      if line != said:
        _log.warning("the way to %s and back fails: %s", task.name, line)
        said = line
    finally:
      if session is not None:
        if error is not None:
          session.abort(lambda: tf.errors.CancelledError(None, None, "canary"))
        session.close()
    time.sleep(max(0.0, min(TIMING.retry_pause, deadline - time.monotonic())))


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
    "%s at %s answers, and yet no tensor comes from %s to it and back (%s). Was it started with "
    "the same cluster? It must know %s at %s." % (
      task.name, task.address, own_task.name, reason, own_task.name, own_task.address)
  )
