"""Adam that changes only the rows of the batch, for the sparse gradients of embeddings.

`tf.train.AdamOptimizer` changes every row of a table in every step: it decays both moments of all
rows and adds the moment of each row to the row. With a million rows this takes all of the ps's
time. For a sparse gradient, this optimizer does the following on the device of the variable:

1. `tf.train.Optimizer` sums rows of the gradient that have the same index.
2. The optimizer gathers the rows of the moments m and v with these indices, and computes
     m = beta1 * m + (1 - beta1) * gradient
     v = beta2 * v + (1 - beta2) * gradient ** 2
3. It scatters the new moments back, and subtracts from the variable's rows
     learning_rate * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * m / (sqrt(v) + epsilon)

The formulas are from "Adam: A Method for Stochastic Optimization" (Kingma and Ba, 2014), in the
form of TensorFlow's documentation of AdamOptimizer. t counts all updates, not only the updates of
the row.

This algorithm differs from Adam. Here a row outside the batch keeps its moments and its value. Adam
decays the moments of such a row, and moves the row by what remains of them. So a gradient moves a
rare row further than with Adam's decayed second moment, and old gradients do not move the row at
all. Dense gradients are applied exactly as by Adam.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class LazyAdamOptimizer(tf.train.AdamOptimizer):
  """A `tf.train.AdamOptimizer` that does not change rows without a gradient.

  It has the arguments, slot names and beta powers of Adam, so both can read the same checkpoints.
  """

  def _apply_sparse(self, grad, var):
    return self._update_rows(var, grad.values, grad.indices)

  def _resource_apply_sparse(self, grad, handle, indices):
    return self._update_rows(handle, grad, indices)

  def _update_rows(self, variable, gradient, indices):
    """Builds the update of a variable's rows.

    Args:
      variable: a ref or resource variable; the caller has opened its device's scope.
      gradient: the gradient of the rows, [rows] + shape of a row.
      indices: the index of each row, without repetition, [rows].
    """
    dtype = variable.dtype.base_dtype
    beta1_power, beta2_power = (tf.cast(power, dtype) for power in self._get_beta_accumulators())
    # The constants of `_prepare` are on the worker, so each would cost a message.
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
    return scatter(variable, indices, rows, use_locking=self._use_locking).op
