"""Optimizers with weight decay that is decoupled from the gradient.

Loshchilov, Hutter: Decoupled Weight Decay Regularization, https://arxiv.org/abs/1711.05101.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class DecoupledWeightDecayExtension:
  """Adds weight decay to an optimizer: each update first shrinks the variable.

  Derive a class from this class and from an optimizer, in this order:
  `class SgdW(DecoupledWeightDecayExtension, tf.train.GradientDescentOptimizer)`. A sparse update
  shrinks only the rows that it changes.

  Args:
    weight_decay: the fraction of the variable that each update subtracts; a number or a tensor.
    **kwargs: the arguments of the optimizer.
  """

  def __init__(self, weight_decay, **kwargs):
    self._decayed = None
    self._weight_decay = weight_decay
    super().__init__(**kwargs)

  def minimize(self, loss, global_step=None, var_list=None, gate_gradients=1,
               aggregation_method=None, colocate_gradients_with_ops=False, name=None,
               grad_loss=None, decay_var_list=None):
    """Like `Optimizer.minimize`; decay_var_list has the variables that shrink, None for all."""
    self._decayed = decay_var_list
    return super().minimize(
        loss, global_step=global_step, var_list=var_list, gate_gradients=gate_gradients,
        aggregation_method=aggregation_method,
        colocate_gradients_with_ops=colocate_gradients_with_ops, name=name, grad_loss=grad_loss)

  def apply_gradients(self, grads_and_vars, global_step=None, name=None, decay_var_list=None):
    """Like `Optimizer.apply_gradients`; decay_var_list has the variables that shrink."""
    if decay_var_list is not None:
      self._decayed = decay_var_list
    return super().apply_gradients(grads_and_vars, global_step=global_step, name=name)

  def _shrink(self, var, rows=None):
    """Returns the operations that come before the update of a variable, or of these rows of it."""
    if self._decayed is not None and not any(var is decayed for decayed in self._decayed):
      return []
    with tf.colocate_with(var):
      decay = tf.cast(self._weight_decay() if callable(self._weight_decay) else self._weight_decay,
                      var.dtype.base_dtype)
      if rows is not None:
        return [tf.scatter_sub(var, rows, decay * tf.gather(var, rows), self._use_locking).op]
      return [tf.assign_sub(var, decay * var, self._use_locking).op]

  def _apply_dense(self, grad, var):
    with tf.control_dependencies(self._shrink(var)):
      return super()._apply_dense(grad, var)

  def _resource_apply_dense(self, grad, var):
    with tf.control_dependencies(self._shrink(var)):
      return super()._resource_apply_dense(grad, var)

  def _apply_sparse(self, grad, var):
    with tf.control_dependencies(self._shrink(var, grad.indices)):
      return super()._apply_sparse(grad, var)

  def _resource_apply_sparse(self, grad, var, indices):
    with tf.control_dependencies(self._shrink(var, indices)):
      return super()._resource_apply_sparse(grad, var, indices)


def extend_with_decoupled_weight_decay(base_optimizer):
  """Returns a class of optimizers that takes `weight_decay` before the base's arguments."""
  class OptimizerWithDecoupledWeightDecay(DecoupledWeightDecayExtension, base_optimizer):
    """The base optimizer with decoupled weight decay."""

    def __init__(self, weight_decay, *args, **kwargs):
      self._decayed = None
      self._weight_decay = weight_decay
      base_optimizer.__init__(self, *args, **kwargs)

  return OptimizerWithDecoupledWeightDecay


class AdamWOptimizer(DecoupledWeightDecayExtension, tf.train.AdamOptimizer):
  """Adam with decoupled weight decay."""

  def __init__(self, weight_decay, learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-8,
               use_locking=False, name="AdamW"):
    super().__init__(
        weight_decay, learning_rate=learning_rate, beta1=beta1, beta2=beta2, epsilon=epsilon,
        use_locking=use_locking, name=name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, tf.train.MomentumOptimizer):
  """Momentum with decoupled weight decay."""

  def __init__(self, weight_decay, learning_rate, momentum, use_locking=False, name="MomentumW",
               use_nesterov=False):
    super().__init__(
        weight_decay, learning_rate=learning_rate, momentum=momentum, use_locking=use_locking,
        name=name, use_nesterov=use_nesterov)


def clip_gradients_by_global_norm(gradients_variables, clip_norm=20.0):
  """Scales all gradients down so that their global norm is at most clip_norm."""
  gradients, variables = zip(*gradients_variables)
  return list(zip(tf.clip_by_global_norm(gradients, clip_norm)[0], variables))
