"""All gradients of one replica on their way into an update.

What travels as one, such as the gradients of several small variables (transfer/packing.py), has
rows beside its first variable (gradient_rows.py). A replica

1. makes the rows where they are not there yet, when it joins;
2. pushes its gradients into its own rows; where there are spare replicas and the gradients are
   large, first looks whether they are too late, and then sends nothing;
3. takes the means, if it is the one that makes the update.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.replication import gradient_rows
from tf1ps.replication import turns as turns_lib
from tf1ps.transfer import DEFAULT_PACK_BYTES, Bucket


class GradientExchange:
  """The rows of all variables of one optimizer."""

  def __init__(self, parcels: List[Bucket], turns: turns_lib.Turns, shared_name: str):
    """Builds the rows in the default graph.

    Args:
      parcels: this replica's gradients; all replicas divide them alike.
      turns: of the optimizer.
      shared_name: under which all replicas find the rows.
    """
    self._turns = turns
    self._parcels = parcels
    # Who joins uses them too, and must not run what a training step is made to wait for.
    with tf.control_dependencies(None):
      self._rows = [self._make_rows(parcel, shared_name) for parcel in parcels]

  def make_where_absent(self) -> List[tf.Operation]:
    """Operations that make the rows where they are not there."""
    made = []
    for group in self._by_task():
      with tf.get_default_graph().colocate_with(group[0][0].variable.op):
        made.append(tf.cond(
          tf.reduce_all([rows.is_made() for rows, _ in group]), lambda: tf.constant(True),
          lambda group=group: _after([op for rows, _ in group for op in rows.make()])).op)
    return made

  def push(self) -> List[tf.Operation]:
    """Operations that write this replica's rows."""
    rules = self._turns.rules
    if rules.aggregate == rules.replicas or self._are_small():
      return [self._push()]
    with tf.control_dependencies([part for parcel in self._parcels for part in parcel.parts]):
      is_late = self._turns.is_late()
    return [tf.cond(is_late, lambda: tf.constant(False), lambda: _after([self._push()])).op]

  def means(self, came: tf.Tensor) -> list:
    """The means of the gradients of those who came, with the variables; see `DenseRows.mean`."""
    return [pair for parcel, rows in zip(self._parcels, self._rows)
            for pair in parcel.unpack(rows.mean(came))]

  def _are_small(self):
    """Whether sending them costs no more than the way there and back that looking takes."""
    if not all(isinstance(parcel.gradient, tf.Tensor) and parcel.shape.is_fully_defined()
               for parcel in self._parcels):
      return False
    return sum(parcel.dtype.size * parcel.shape.num_elements()
               for parcel in self._parcels) <= DEFAULT_PACK_BYTES

  def _push(self):
    pushed = []
    for group in self._by_task():
      first = group[0][0]
      sent = [parcel.send() for _, parcel in group]  # which waits for nothing on the other side
      with tf.get_default_graph().colocate_with(first.variable.op):
        joined = self._turns.check_joined(first.is_made())
      with tf.control_dependencies([joined]):
        pushed += [op for (rows, _), gradient in zip(group, sent)
                   for op in rows.push(gradient, self._turns.index)]
    return tf.group(*pushed)

  def _make_rows(self, parcel, shared_name):
    name = "tf1ps.gradients:%s:%s" % (shared_name, parcel.name)
    common = (self._turns.rules.replicas, self._turns.container, name)
    if isinstance(parcel.gradient, tf.IndexedSlices):
      return gradient_rows.SparseRows(parcel.variables[0], parcel.gradient, *common)
    return gradient_rows.DenseRows(parcel, parcel.dtype, *common)

  def _by_task(self):
    """Pairs of rows and the parcels that they are for, task by task."""
    found = {}
    for rows, parcel in zip(self._rows, self._parcels):
      found.setdefault(rows.variable.device, []).append((rows, parcel))
    return found.values()


def _after(operations) -> tf.Tensor:
  with tf.control_dependencies(operations):
    return tf.constant(True)
