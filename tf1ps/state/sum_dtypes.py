"""The type in which to add up values for a mean.

Five gradients of 20,000 overflow float16 (at most 65,504) when they are added up, while their mean
does not. TensorFlow's `reduce_mean` of float16 on a CPU overflows, too.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def sum_dtype(dtype) -> tf.DType:
  """Returns float32 for floating-point types smaller than float32; else the type itself."""
  dtype = tf.as_dtype(dtype).base_dtype
  return tf.float32 if dtype.is_floating and dtype.size < 4 else dtype
