"""An optimizer around another one, which computes gradients, updates, and has the slots."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class WrappingOptimizer(tf.train.Optimizer):
  """Hands on what it does not do itself."""

  def __init__(self, opt: tf.train.Optimizer, use_locking: bool, name: str):
    """Creates it.

    Args:
      opt: the optimizer inside.
      use_locking: of TensorFlow's base class.
      name: of the optimizer.

    Raises:
      TypeError: `opt` is no optimizer.
    """
    if not hasattr(opt, "compute_gradients") or not hasattr(opt, "apply_gradients"):
      raise TypeError("opt must be a tf.train.Optimizer, got %r" % (opt,))
    super().__init__(use_locking, name)
    self._opt = opt

  def compute_gradients(self, loss, *args, **kwargs):
    """Computes gradients like the inner optimizer."""
    return self._opt.compute_gradients(loss, *args, **kwargs)

  def get_slot(self, *args, **kwargs):
    """Returns a slot of the inner optimizer."""
    return self._opt.get_slot(*args, **kwargs)

  def get_slot_names(self, *args, **kwargs):
    """Returns the names of the inner optimizer's slots."""
    return self._opt.get_slot_names(*args, **kwargs)

  def variables(self):
    """Returns the inner optimizer's variables."""
    return self._opt.variables()
