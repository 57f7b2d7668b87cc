"""The learning rate of a program's own optimizer, for which TensorFlow has no public attribute."""

from __future__ import annotations

import numbers
from typing import Union

import tensorflow.compat.v1 as tf

_RATES = ("_learning_rate", "_lr")  # of TensorFlow's optimizers
_INNER = ("_opt", "_optimizer")  # of optimizers around another optimizer


def learning_rate_in(optimizer: tf.train.Optimizer) -> Union[None, float, tf.Tensor]:
  """Returns the learning rate with which an optimizer was made.

  It is a number or a scalar float tensor. None: the optimizer has none that is known, or a
  function makes it.
  """
  for name in _INNER:
    inner = getattr(optimizer, name, None)
    if isinstance(inner, tf.train.Optimizer):
      return learning_rate_in(inner)
  for name in _RATES:
    rate = getattr(optimizer, name, None)
    if isinstance(rate, numbers.Real):
      return float(rate)
    if isinstance(rate, (tf.Tensor, tf.Variable)) and rate.shape.ndims == 0 and (
        rate.dtype.is_floating):
      return tf.cast(rate, tf.float32)
  return None
