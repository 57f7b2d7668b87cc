"""Gives variables their values, from a checkpoint or from initialisers.

The local state of a task comes last: local variables and tables, then the input's iterators.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Callable, Iterator, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import restore_latest
from tf1ps.compat import Error, lock_counts
from tf1ps.pipeline import adopt_queue_runners, iterator_initializers, warn_unfilled_queues
from tf1ps.replication import clear_ops, partial_updates

_log = logging.getLogger("tf1ps")
_IN_INITIALISATION = "an init_op, a restore or a local_init_op has not ended"


class SessionCreationError(Error, RuntimeError):
  """The training session could not be created."""


class SessionTimeoutError(SessionCreationError, tf.errors.DeadlineExceededError):
  """The training session was not ready within max_wait_secs."""

  def __init__(self, max_wait_secs: float, reason: str):
    # The text begins like TensorFlow's.
    tf.errors.DeadlineExceededError.__init__(
      self, None, None, "Session was not ready after waiting %.0f secs (max_wait_secs): %s" % (
        max_wait_secs, reason))


def finalize(scaffold: tf.train.Scaffold) -> None:
  """Prepares the default graph for its sessions, then finalises the scaffold and the graph.

  It adopts the queue runners. It also makes counters that several workers increment exact
  (`lock_counts`).
  """
  adopt_queue_runners()
  scaffold.finalize()
  lock_counts(tf.get_default_graph())


@contextlib.contextmanager
def within(session, max_wait_secs: float,
           reason: Callable[[], str] = lambda: _IN_INITIALISATION) -> Iterator[None]:
  """Limits a block that initialises a session: after `max_wait_secs`, a SessionTimeoutError.

  An init_op may wait for ever, for example for a queue whose runners start later. From here on, a
  session run logs a warning if it waits for a queue that no thread fills.
  """
  session.on_long_run = warn_unfilled_queues
  timer = threading.Timer(
    min(max_wait_secs, threading.TIMEOUT_MAX), session.abort,
    [lambda: SessionTimeoutError(max_wait_secs, reason())])
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()


def restore_or_initialise(session, scaffold: tf.train.Scaffold,
                          checkpoint_dir: Optional[str]) -> Optional[str]:
  """Restores the latest readable checkpoint, or else runs the scaffold's init_op and init_fn.

  Then it clears the state of rounds and clocks, which belongs to the previous values (`clear_ops`).
  Returns the restored checkpoint, or None. Raises CheckpointError if no checkpoint can be read, or
  if the checkpoint does not fit the graph.
  """
  checkpoint = None
  if checkpoint_dir:
    checkpoint = restore_latest(session, scaffold.saver, checkpoint_dir)
  if checkpoint is not None:
    _log.info("restored %s", checkpoint)
  else:
    session.run(scaffold.init_op, feed_dict=scaffold.init_feed_dict)
    if scaffold.init_fn is not None:
      scaffold.init_fn(session)
  session.run(clear_ops(session.graph))
  return checkpoint


def initialise_locally(session, scaffold: tf.train.Scaffold, only_task: Optional[str] = None,
                       run: Optional[Callable] = None) -> None:
  """Runs the scaffold's local_init_op, and initialises the iterators outside of that operation.

  Args:
    session: the session.
    scaffold: the scaffold.
    only_task: the session's task, if another task initialises the shared iterators.
    run: runs the local_init_op; None: `session.run`.

  Raises:
    SessionCreationError: a variable is still not initialised.
  """
  if scaffold.local_init_op is not None:
    (run or session.run)(scaffold.local_init_op)
  missing = missing_variables(session, scaffold.ready_op)
  if missing:
    raise SessionCreationError(
      "Init operations did not make model ready. %s. The init_op, the checkpoint or the "
      "local_init_op must initialise them" % say_missing(missing))
  session.run(iterator_initializers(session.graph, scaffold.local_init_op, only_task))


def has_partial_update(session) -> bool:
  """Returns whether an interrupted synchronous update has left unusable values.

  The check waits until the current updates have ended.
  """
  return any(session.run(partial_updates(session.graph)))


def missing_variables(session, ready_op) -> list:
  """The names that a scaffold's ready operation reports as not initialised."""
  if ready_op is None:
    return []
  value = session.run(ready_op)
  if value is None:
    return []
  return sorted(name.decode("utf-8") for name in value)


def say_missing(names: Sequence[str]) -> str:
  """Returns the names of variables without a value in TensorFlow's words, for an error."""
  more = " and %d more" % (len(names) - 5) if len(names) > 5 else ""
  return "Variables not initialized: " + ", ".join(names[:5]) + more
