"""Adam that touches only the rows of the batch, for the sparse gradients of embeddings.

`tf.train.AdamOptimizer` moves every row of a table in every step: it decays both moments of all
rows, and then adds the moment of each row to the row. For a table of a million rows that is all of
the ps's time. What happens here to a sparse gradient, all on the device of the variable:

1. rows of the gradient with one index are summed (by `tf.train.Optimizer`);
2. the rows of the moments m and v of these indices are gathered, and become
     m = beta1 * m + (1 - beta1) * gradient
     v = beta2 * v + (1 - beta2) * gradient ** 2
3. they are scattered back, and from the variable's rows is subtracted
     learning_rate * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + epsilon)

The formulas are those of "Adam: A Method for Stochastic Optimization" (Kingma and Ba, 2014), as
TensorFlow's documentation of AdamOptimizer gives them. t counts all updates, not those of the row.

The difference: a row that is not in the batch keeps its moments and its value, where Adam would let
the moments decay and go on moving the row by what is left of them. So it is another algorithm: a
row that comes seldom is moved further by one gradient than by Adam's decayed second moment, and
not at all by gradients of long ago. Dense gradients are updated exactly as by Adam.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class LazyAdamOptimizer(tf.train.AdamOptimizer):
  """A `tf.train.AdamOptimizer` that leaves alone the rows that have no gradient.

  Arguments, names of slots and beta powers are Adam's, so a checkpoint of the one can be restored
  into the other.
  """

  def _apply_sparse(self, grad, var):
    return self._update_rows(var, grad.values, grad.indices)

  def _resource_apply_sparse(self, grad, handle, indices):
    return self._update_rows(handle, grad, indices)

  def _update_rows(self, variable, gradient, indices):
    """The update of a variable's rows.

    Args:
      variable: ref or resource; the caller has opened its device's scope.
      gradient: of the rows, [rows] + shape of a row.
      indices: of the rows, each once, [rows].

    Returns:
      The operation.
    """
    dtype = variable.dtype.base_dtype
    beta1_power, beta2_power = (tf.cast(power, dtype) for power in self._get_beta_accumulators())
    # Not the constants that `_prepare` has made: those are on the worker, and each is a message.
    rate, beta1, beta2, epsilon = (tf.cast(self._call_if_callable(each), dtype) for each in (
      self._lr, self._beta1, self._beta2, self._epsilon))
    rate = rate * tf.sqrt(1 - beta2_power) / (1 - beta1_power)
    moments = []
    for name, beta, value in (("m", beta1, gradient), ("v", beta2, tf.square(gradient))):
      slot = self.get_slot(variable, name)
      moment = beta * tf.gather(slot, indices) + (1 - beta) * value
      moments.append((slot, moment))
    (_, m), (_, v) = moments
    updates = [self._scatter(tf.scatter_update, slot, indices, moment) for slot, moment in moments]
    updates.append(self._scatter(
      tf.scatter_sub, variable, indices, rate * m / (tf.sqrt(v) + epsilon)))
    return tf.group(*updates)

  def _scatter(self, scatter, variable, indices, rows):
    """Scatters rows of a ref or a resource variable; returns the operation."""
    return scatter(variable, indices, rows, use_locking=self._use_locking).op
