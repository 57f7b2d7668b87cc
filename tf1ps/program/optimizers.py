"""The optimizers that flags choose by name.

All but lazy_adam are TensorFlow's own. Arguments that the table does not name have TensorFlow's
defaults:

  name              learning rate  tf.train
  sgd               0.01           GradientDescentOptimizer
  momentum          0.01           MomentumOptimizer, momentum 0.9
  nesterov          0.01           MomentumOptimizer, momentum 0.9, use_nesterov
  adam              0.001          AdamOptimizer (its own default, as in the paper)
  lazy_adam         0.001          tf1ps.transfer.LazyAdamOptimizer: Adam on the batch's rows only
  adagrad           0.05           AdagradOptimizer
  adadelta          1.0            AdadeltaOptimizer (the paper's method has no learning rate)
  rmsprop           0.001          RMSPropOptimizer (as in Hinton's lecture)
  ftrl              0.05           FtrlOptimizer
  proximal_sgd      0.01           ProximalGradientDescentOptimizer
  proximal_adagrad  0.05           ProximalAdagradOptimizer
"""

from __future__ import annotations

import math
from typing import Optional, Union

import tensorflow.compat.v1 as tf

from tf1ps.cluster import nearest_name
from tf1ps.program import choices
from tf1ps.transfer import LazyAdamOptimizer


def _momentum(learning_rate):
  return tf.train.MomentumOptimizer(learning_rate, momentum=0.9)


def _nesterov(learning_rate):
  return tf.train.MomentumOptimizer(learning_rate, momentum=0.9, use_nesterov=True)


# Name to a callable that makes the optimizer from a learning rate.
_MAKERS = {
  "sgd": tf.train.GradientDescentOptimizer,
  "momentum": _momentum,
  "nesterov": _nesterov,
  "adam": tf.train.AdamOptimizer,
  "lazy_adam": LazyAdamOptimizer,
  "adagrad": tf.train.AdagradOptimizer,
  "adadelta": tf.train.AdadeltaOptimizer,
  "rmsprop": tf.train.RMSPropOptimizer,
  "ftrl": tf.train.FtrlOptimizer,
  "proximal_sgd": tf.train.ProximalGradientDescentOptimizer,
  "proximal_adagrad": tf.train.ProximalAdagradOptimizer,
}


def learning_rate_of(name: str, learning_rate: Optional[float] = None) -> float:
  """Returns the learning rate of an optimizer of this name: the given one, or else its default.

  Raises ValueError if there is no such optimizer.
  """
  _check_name(name)
  return choices.LEARNING_RATES[name] if learning_rate is None else learning_rate


def make_optimizer(name: str,
                   learning_rate: Union[None, float, tf.Tensor] = None) -> tf.train.Optimizer:
  """Makes an optimizer; returns a `tf.train.Optimizer`.

  Args:
    name: one of `OPTIMIZERS`.
    learning_rate: a positive number, a scalar float tensor such as a learning rate schedule, or
      None for the default in the table above.

  Raises:
    ValueError: there is no such optimizer, or the learning rate is not positive.
  """
  _check_name(name)
  if learning_rate is None:
    learning_rate = choices.LEARNING_RATES[name]
  elif not isinstance(learning_rate, tf.Tensor):
    learning_rate = float(learning_rate)
    if not (math.isfinite(learning_rate) and learning_rate > 0):
      raise ValueError(f"learning_rate must be above 0 and finite, got {learning_rate}")
  return _MAKERS[name](learning_rate)


def add_l2_gradients(grads_and_vars: list, scale: float) -> list:
  """Adds the gradient of an L2 penalty to that of the loss.

  The penalty is scale / 2 times the sum of the squares of all weights, and its gradient is scale
  times the weight. A weight is a float variable of two dimensions or more whose gradient is dense.
  Biases, and the scales and offsets of normalization, have one dimension. A table whose gradient
  is sparse is left out: the penalty would send all of it in each step.

  Args:
    grads_and_vars: as `compute_gradients` returns them.
    scale: the strength of the penalty.

  Returns:
    The pairs, in the same order.
  """
  found = []
  for gradient, variable in grads_and_vars:
    if isinstance(gradient, tf.Tensor) and (variable.shape.ndims or 0) >= 2:
      gradient = gradient + tf.cast(scale, gradient.dtype) * variable.read_value()
    found.append((gradient, variable))
  return found


def _check_name(name):
  if name not in choices.OPTIMIZERS:
    nearest = nearest_name(str(name), choices.OPTIMIZERS)
    raise ValueError(f"there is no optimizer {name!r}: {nearest}")
