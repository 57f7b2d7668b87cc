"""Optimizers by name, as the flags choose them.

Each is TensorFlow's own but lazy_adam, with TensorFlow's defaults for whatever stands not here:

  name              learning rate  tf.train
  sgd               0.01           GradientDescentOptimizer
  momentum          0.01           MomentumOptimizer, momentum 0.9
  nesterov          0.01           MomentumOptimizer, momentum 0.9, use_nesterov
  adam              0.001          AdamOptimizer (its own default, as in the paper)
  lazy_adam         0.001          tf1ps.transfer.lazy_adam: Adam on the rows of the batch alone
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


# Name to what makes the optimizer of a learning rate.
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

OPTIMIZER_NAMES = choices.OPTIMIZERS


def learning_rate_of(name: str, learning_rate: Optional[float] = None) -> float:
  """The learning rate that an optimizer of this name gets; raises ValueError for another name."""
  _check_name(name)
  return choices.LEARNING_RATES[name] if learning_rate is None else learning_rate


def make_optimizer(name: str,
                   learning_rate: Union[None, float, tf.Tensor] = None) -> tf.train.Optimizer:
  """Makes an optimizer.

  Args:
    name: one of NAMES.
    learning_rate: a positive number, a scalar float tensor such as a schedule gives, or None for
      the default of the table above.

  Returns:
    A `tf.train.Optimizer`.

  Raises:
    ValueError: another name (with the nearest right one), or a learning rate that is not positive.
  """
  _check_name(name)
  if learning_rate is None:
    learning_rate = choices.LEARNING_RATES[name]
  elif not isinstance(learning_rate, tf.Tensor):
    learning_rate = float(learning_rate)
    if not (math.isfinite(learning_rate) and learning_rate > 0):
      raise ValueError(f"learning_rate must be above 0 and finite, got {learning_rate}")
  return _MAKERS[name](learning_rate)


def _check_name(name):
  if name not in OPTIMIZER_NAMES:
    raise ValueError(f"there is no optimizer {name!r}: {nearest_name(str(name), OPTIMIZER_NAMES)}")
