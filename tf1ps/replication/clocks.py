"""Clocks: how many steps each replica has made, on the ps that keeps the global step.

A replica's clock counts its own steps, whether its gradients were applied or not. The clocks of all
replicas, and who takes part, are one small vector beside the global step, which no checkpoint has:

1. A replica joins. It begins at the clock of the slowest one that takes part, so that nobody waits
   until a replica that comes late has caught up. First it says that it is joining, with a clock
   that may be a step too low, as the others go on meanwhile: from then on they wait for it, so
   that the slowest clock which it reads next is one that nobody is too far ahead of.
2. Its training step raises its clock and reads all of them (`advance`), which costs no message: the
   answer comes back with the end of the step.
3. It leaves, or others drop it because it is lost: from then on it is not counted. One that was
   dropped by mistake finds that out after its next step, and joins again.

When the variables get new values, the chief clears the clocks (session_ops.py), and all join again.
Each replica writes only its own clock, so that no step needs a lock.
"""

from __future__ import annotations

from typing import Iterable, List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication import session_ops

# A replica has not joined yet; takes part; has left, or was dropped; is about to take part.
EXPECTED, ACTIVE, CLOCK_AWAY, JOINING = range(4)


class View(NamedTuple):
  """The clocks as of one moment, in Python."""

  clocks: List[int]  # of each replica
  standings: List[int]  # EXPECTED, ACTIVE, AWAY or JOINING

  def lead(self, index: int, counted: Iterable[int] = (EXPECTED, ACTIVE)) -> int:
    """How many steps a replica has made more than the slowest that counts.

    Args:
      index: the replica.
      counted: the standings of those that count.
    """
    others = [clock for i, clock in enumerate(self.clocks)
              if i != index and self.standings[i] in counted]
    return max([self.clocks[index] - clock for clock in others], default=0)


class Clocks:
  """The clocks of a job's replicas, as one replica's graph sees them.

  Attributes:
    replicas: how many there are.
    index: of this replica.
    clear: the operation that sets all clocks to 0 and has everybody join again; for the chief, in a
      session that initialises variables. In a training session of tf1ps that happens by itself.
  """

  def __init__(self, global_step: tf.Variable, replicas: int, index: int):
    """Builds them in the default graph.

    Args:
      global_step: the variable that counts updates; the clocks live beside it.
      replicas: how many there are.
      index: of this replica.

    Raises:
      ValueError: an index that is not 0 to `replicas` - 1.
    """
    if not 0 <= index < replicas:
      raise ValueError("index must be 0 to %d, got %r: there are %d replicas" % (
        replicas - 1, index, replicas))
    self.replicas, self.index = replicas, index
    self._has_left = False
    graph = tf.get_default_graph()
    self._global_step = global_step
    container = global_step.op.get_attr("container").decode("utf-8")
    with tf.control_dependencies(None), tf.name_scope("clocks"), \
        graph.container(container), graph.colocate_with(global_step.op):
      self._handle = tf.raw_ops.VarHandleOp(
        dtype=tf.int64, shape=[2 * replicas], shared_name="tf1ps.clocks:" + global_step.op.name)
      self.clear = tf.raw_ops.AssignVariableOp(
        resource=self._handle, value=tf.zeros([2 * replicas], tf.int64))
      self._look = self._read()
      self._join = self._build_join()
      self._dropped = tf.placeholder_with_default(tf.constant(index, tf.int64), [])
      self._drop = self._write([replicas + self._dropped], [CLOCK_AWAY])
    session_ops.add_clear_op(self.clear)

  def advance(self, train_op: tf.Operation) -> tf.Tensor:
    """Builds the raise of this replica's clock.

    Args:
      train_op: the training step.

    Returns:
      All clocks and standings after the step, for `view`: fetch it together with `train_op`.
    """
    with tf.get_default_graph().colocate_with(self._global_step.op), \
        tf.control_dependencies([train_op]):
      raised = tf.raw_ops.ResourceScatterAdd(
        resource=self._handle, indices=[self.index], updates=tf.constant([1], tf.int64))
      with tf.control_dependencies([raised]):
        return self._read()

  # What a replica runs beside its steps.

  def look(self, session) -> View:
    """The clocks now."""
    return view_clocks(session.run(self._look))

  def join(self, session) -> View:
    """This replica takes part, with the clock of the slowest; one that has left stays away."""
    if self._has_left:
      self.leave(session)
      return self.look(session)
    return view_clocks(session.run(self._join))

  def leave(self, session) -> None:
    """This replica takes no part any more."""
    self._has_left = True
    self.drop(session, self.index)

  def drop(self, session, replica: int) -> None:
    """Another replica takes no part any more."""
    session.run(self._drop, {self._dropped: replica})

  # Parts.

  def _read(self):
    value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=tf.int64)
    value.set_shape([2 * self.replicas])
    return value

  def _write(self, indices, values):
    return tf.raw_ops.ResourceScatterUpdate(
      resource=self._handle, indices=indices, updates=tf.cast(values, tf.int64))

  def _build_join(self):
    said = self._write_own(JOINING)
    with tf.control_dependencies([said]):
      joined = self._write_own(ACTIVE)
    with tf.control_dependencies([joined]):
      return self._read()

  def _write_own(self, standing):
    """This replica gets the clock of the slowest of the others, or keeps its own."""
    clocks, standings = tf.split(self._read(), 2)
    counts = tf.logical_and(tf.equal(standings, ACTIVE),
                            tf.not_equal(tf.range(self.replicas), self.index))
    slowest = tf.reduce_min(tf.where_v2(counts, clocks, tf.int64.max))
    begin = tf.where_v2(tf.reduce_any(counts), slowest, clocks[self.index])
    return self._write([self.index, self.replicas + self.index], tf.stack([begin, standing]))


def view_clocks(value: np.ndarray) -> View:
  """The vector as values of Python."""
  clocks, standings = np.split(value, 2)
  return View(clocks.tolist(), standings.tolist())
