"""Adam that updates a large table with a sparse gradient as fast as with a dense gradient.

For a sparse gradient, `tf.train.AdamOptimizer` decays the moments of all rows and moves all rows,
even rows without a gradient. It needs about ten operations on whole tables. For a dense gradient,
TensorFlow's fused `ApplyAdam` makes the same update in one pass. So this optimizer converts a
sparse gradient to a dense gradient on the ps, and sums rows of the same index there. During the
update this takes additional memory of the size of the table; TensorFlow's operations take twice
that.

AdamW is Adam with decoupled weight decay: "Decoupled Weight Decay Regularization" (Loshchilov and
Hutter, 2019), algorithm 2 with alpha = 1 and the learning rate, with its schedule, as eta. It
subtracts learning_rate * weight_decay * value from each value. It also makes Adam's update, with
the gradient of the loss without a penalty. In a table with a sparse gradient all rows decay, just
as Adam moves all rows.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class AdamOptimizer(tf.train.AdamOptimizer):
  """A `tf.train.AdamOptimizer` with the same values in less time; LazyAdam is another algorithm."""

  def _apply_sparse_duplicate_indices(self, grad, var):
    return self._apply_dense(_dense(grad.values, grad.indices, var), var)

  def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices):
    return self._resource_apply_dense(_dense(grad, indices, handle), handle)


class AdamWOptimizer(AdamOptimizer):
  """An `AdamOptimizer` with decoupled weight decay, of all variables that have a gradient."""

  def __init__(self, learning_rate=0.001, weight_decay=0.01, name: str = "AdamW", **arguments):
    """Creates the optimizer.

    Args:
      learning_rate: a number, a scalar float tensor, or a callable that returns it.
      weight_decay: a number from 0 on; an update subtracts this part of a value, times the learning
        rate.
      name: the name of the optimizer, and of its slots.
      arguments: beta1, beta2, epsilon and use_locking of `tf.train.AdamOptimizer`.

    Raises:
      ValueError: the weight decay is below 0.
    """
    super().__init__(learning_rate, name=name, **arguments)
    if not weight_decay >= 0:
      raise ValueError("weight_decay must be at least 0, got %r" % (weight_decay,))
    self._weight_decay = weight_decay

  def _apply_dense(self, grad, var):
    with tf.control_dependencies([self._decay(var, grad)]):
      return super()._apply_dense(grad, var)

  def _resource_apply_dense(self, grad, handle):
    with tf.control_dependencies([self._decay(handle, grad)]):
      return super()._resource_apply_dense(grad, handle)

  def _decay(self, variable, gradient) -> tf.Operation:
    with tf.control_dependencies([gradient]):  # it is computed from the value before the decay
      rate = tf.cast(self._call_if_callable(self._lr), variable.dtype.base_dtype)
      return tf.assign_sub(variable, rate * self._weight_decay * variable.read_value(),
                           use_locking=self._use_locking).op


def _dense(rows, indices, variable) -> tf.Tensor:
  """Returns a gradient like its variable; `rows` are [count] + the shape of a row."""
  shape = tf.shape(variable, out_type=indices.dtype) if not variable.shape.is_fully_defined() \
    else tf.constant(variable.shape.as_list(), indices.dtype)
  return tf.scatter_nd(tf.expand_dims(indices, 1), rows, shape)
