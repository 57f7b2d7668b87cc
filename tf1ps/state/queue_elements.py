"""The elements of a queue: their components, as callers give them and take them."""

from __future__ import annotations

from typing import List

import numpy as np
import tensorflow.compat.v1 as tf


def has_shapes(queue) -> bool:
  """Whether batches can be taken: TensorFlow asks for known shapes, or known ranks to pad to."""
  return all(shape.ndims is not None for shape in queue.shapes)


def batch_of(shape) -> tf.TensorShape:
  """The shape of a component of a batch."""
  return tf.TensorShape([None]).concatenate(shape)


def single(queue):
  """(numpy's dtype, shape) of the only component, where it has no name; else None."""
  if queue.names or len(queue.dtypes) != 1 or not queue.shapes[0].is_fully_defined():
    return None
  return np.dtype(queue.dtypes[0].as_numpy_dtype), tuple(queue.shapes[0].as_list())


def listed(queue, values, many: bool) -> list:
  """The components of what a caller gives: a dict where they have names, a list, or the one.

  A list with one value may be the only component itself, or hold it: its rank tells. Where the
  rank is not known it holds it, as TensorFlow takes it.
  """
  if queue.names:
    if not isinstance(values, dict) or sorted(values) != sorted(queue.names):
      raise ValueError("queue %s takes a dict with %s, got %r" % (
        queue.name, ", ".join(queue.names), values))
    return [values[name] for name in queue.names]
  if len(queue.dtypes) == 1:
    is_list = isinstance(values, (list, tuple)) and len(values) == 1
    rank = queue.shapes[0].ndims
    if not is_list or (rank is not None and _rank(values) == rank + many):
      return [values]
  if not isinstance(values, (list, tuple)) or len(values) != len(queue.dtypes):
    raise ValueError("queue %s has %d components, got %r" % (
      queue.name, len(queue.dtypes), values))
  return list(values)


def _rank(value) -> int:
  """The number of dimensions of a value that may be a list, also of tensors."""
  if isinstance(value, (list, tuple)):
    return 1 + (_rank(value[0]) if value else 0)
  return tf.TensorShape(getattr(value, "shape", [])).ndims or 0


def shaped(queue, components):
  """Components as TensorFlow's dequeue returns them: dict, the one, or a list."""
  if queue.names:
    return dict(zip(queue.names, components))
  return components[0] if len(components) == 1 else list(components)


def as_batch(queue, values, many: bool) -> List[np.ndarray]:
  """The components of what is to be put in, `[n, ...]` each.

  Raises:
    ValueError: they do not fit the queue or each other, or are more than it can ever hold.
  """
  if many and type(values) is np.ndarray and values.ndim:
    is_fit = queue._single == (values.dtype, values.shape[1:])
    if is_fit and (len(values) <= queue.spec.capacity or queue.spec.capacity < 0):
      return [values]  # the common case, at a tenth of the time
  vals = [np.asarray(value, dtype.as_numpy_dtype)
          for value, dtype in zip(listed(queue, values, many), queue.dtypes)]
  if not many:
    vals = [value[np.newaxis] for value in vals]
  _check_batch(queue, vals)
  return vals


def _check_batch(queue, vals):
  counts = {len(value) if value.ndim else None for value in vals}
  if len(counts) != 1 or None in counts:
    raise ValueError("the components of a batch have different first dimensions: %s" % (
      ", ".join(str(value.shape) for value in vals)))
  for value, shape in zip(vals, queue.shapes):
    if not shape.is_compatible_with(value.shape[1:]):
      raise ValueError("queue %s takes elements of shape %s, got %s" % (
        queue.name, shape, value.shape[1:]))
  count, = counts
  if 0 < queue.spec.capacity < count:
    raise ValueError("put(%d) into a queue with a capacity of %d would never end" % (
      count, queue.spec.capacity))
