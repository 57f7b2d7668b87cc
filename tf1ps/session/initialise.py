"""Gives variables their values, from a checkpoint or from initialisers.

The local state of a task comes last: local variables and tables, then the input's iterators.
"""

from __future__ import annotations

import logging
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import restore_latest
from tf1ps.compat import Error, lock_counts
from tf1ps.pipeline import adopt_queue_runners, iterator_initializers, warn_unfilled_queues
from tf1ps.replication import clear_ops, partial_updates

_log = logging.getLogger("tf1ps")


class SessionCreationError(Error, RuntimeError):
  """The training session could not be created."""


def finalize(scaffold: tf.train.Scaffold) -> None:
  """Prepares the default graph for its sessions, then finalises the scaffold and the graph.

  It adopts the queue runners, and makes the counts of several workers exact (`lock_counts`).
  """
  adopt_queue_runners()
  scaffold.finalize()
  lock_counts(tf.get_default_graph())


def restore_or_initialise(session, scaffold: tf.train.Scaffold,
                          checkpoint_dir: Optional[str]) -> Optional[str]:
  """Restores the latest readable checkpoint, or else runs the scaffold's init_op and init_fn.

  Then it clears the state of rounds and clocks, which belongs to the previous values (`clear_ops`).
  Returns the restored checkpoint, or None. Raises CheckpointError if no checkpoint can be read, or
  it does not fit the graph.
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


def initialise_locally(session, scaffold: tf.train.Scaffold,
                       only_task: Optional[str] = None) -> None:
  """Runs the scaffold's local_init_op, and initialises the iterators that it leaves out.

  From then on, a run that waits for a queue that no thread fills logs a warning. `only_task` is the
  session's task, if another task initialises the shared iterators. Raises SessionCreationError if a
  variable is still not initialised.
  """
  if scaffold.local_init_op is not None:
    session.run(scaffold.local_init_op)
  missing = missing_variables(session, scaffold.ready_op)
  if missing:
    raise SessionCreationError(
      "%d variables are not initialised, such as %s: the scaffold's init_op, the checkpoint or the "
      "local_init_op must initialise them" % (len(missing), ", ".join(missing[:5])))
  session.run(iterator_initializers(session.graph, scaffold.local_init_op, only_task))
  session.on_long_run = warn_unfilled_queues


def has_partial_update(session) -> bool:
  """Returns whether an interrupted synchronous update has left unusable values.

  The check waits for the end of current updates.
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
