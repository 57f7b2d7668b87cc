"""Several tensors as one: put one behind the other along their first dimension, and divided again.

Flat, each is a vector before; otherwise all have one inner shape and go as they are (groups.py).
"""

from __future__ import annotations

from typing import List, Sequence

import tensorflow.compat.v1 as tf


def lengths(shapes: Sequence[tf.TensorShape], is_flat: bool) -> List[int]:
  """What each tensor of these known shapes has of the first dimension of all together."""
  return [shape.num_elements() if is_flat else shape.as_list()[0] for shape in shapes]


def join(tensors: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape],
         is_flat: bool) -> tf.Tensor:
  """Puts tensors of known shapes together, on the device that is around."""
  return tf.concat([tf.reshape(tensor, [-1]) if is_flat and shape.ndims != 1 else tensor
                    for tensor, shape in zip(tensors, shapes)], 0)


def divide(tensor: tf.Tensor, shapes: Sequence[tf.TensorShape], is_flat: bool) -> List[tf.Tensor]:
  """Divides what `join` has put together, or a tensor like it."""
  parts = tf.split(tensor, lengths(shapes, is_flat))
  parts = [tf.reshape(part, shape) if is_flat and shape.ndims != 1 else part
           for part, shape in zip(parts, shapes)]
  for part, shape in zip(parts, shapes):
    part.set_shape(shape)
  return parts
