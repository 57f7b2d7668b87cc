"""Batches of Python values: what a generator yields, checked, stacked and padded."""

from __future__ import annotations

from typing import Any, Iterable, Iterator, List, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf


class Component(NamedTuple):
  """One tensor of an element."""

  dtype: tf.DType
  shape: tf.TensorShape  # of known rank where batches are made of elements


def components(dtypes: Any, shapes: Any, stacks: bool) -> List[Component]:
  """The components of an element, in the order of `tf.nest.flatten`.

  Args:
    dtypes: a type, or any structure of types.
    shapes: the same structure of shapes, or None for unknown ones.
    stacks: whether batches are made of elements.

  Raises:
    ValueError: the structures differ, or a shape is needed and not known.
  """
  types = [tf.as_dtype(one) for one in tf.nest.flatten(dtypes)]
  if shapes is None:
    found = [tf.TensorShape(None)] * len(types)
  else:
    found = [tf.TensorShape(one) for one in leaves(dtypes, shapes, "shapes")]
  for shape in found:
    if stacks and shape.rank is None:
      raise ValueError("to make batches of elements, the number of dimensions of each shape must "
                       "be known; got shapes %r" % (shapes,))
  return [Component(*one) for one in zip(types, found)]


def leaves(structure: Any, value: Any, what: str) -> list:
  """The parts of a value that stand where the structure has its leaves.

  Args:
    structure: of dicts, tuples and lists; anything else is a leaf.
    value: of the same structure; what stands for a leaf may be anything.
    what: it is, for the message.

  Raises:
    ValueError: the value has another structure.
  """
  if isinstance(structure, dict):
    if not isinstance(value, dict) or set(value) != set(structure):
      raise ValueError("%s must be a dict of %s, got %r" % (what, sorted(structure), value))
    return [leaf for key in sorted(structure) for leaf in leaves(structure[key], value[key], what)]
  if isinstance(structure, (list, tuple)):
    if not isinstance(value, (list, tuple)) or len(value) != len(structure):
      raise ValueError("%s must be a tuple of %d, got %r" % (what, len(structure), value))
    return [leaf for one, part in zip(structure, value) for leaf in leaves(one, part, what)]
  return [value]


def batches(elements: Iterable, dtypes: Any, parts: List[Component], size: Optional[int],
            drop_remainder: bool) -> Iterator[List[np.ndarray]]:
  """Makes batches.

  Args:
    elements: of the structure of `dtypes`.
    dtypes: the structure.
    parts: its components.
    size: elements in a batch; None: each element is a batch already.
    drop_remainder: whether a last batch of fewer elements is left out.

  Yields:
    Arrays, one for each component.

  Raises:
    ValueError: an element of another structure, type or shape; the error says which.
  """
  waiting = []
  for number, element in enumerate(elements):
    what = "element %d of the generator" % number
    values = [_array(value, part, what)
              for value, part in zip(leaves(dtypes, element, what), parts)]
    if size is None:
      yield values
      continue
    waiting.append(values)
    if len(waiting) == size:
      yield _stacked(waiting)
      waiting = []
  if waiting and not drop_remainder:
    yield _stacked(waiting)


def _array(value, part, what):
  kind = object if part.dtype == tf.string else part.dtype.as_numpy_dtype
  try:
    array = np.asarray(value)
    # A number of another type is converted where nothing is lost of its kind, as in a feed.
    if part.dtype != tf.string and not np.can_cast(array.dtype, kind, "same_kind"):
      raise TypeError("%s of %s" % (array.dtype, part.dtype.name))
    array = array.astype(kind, copy=False)
  except (TypeError, ValueError) as error:
    raise ValueError("%s must be %s, got %r (%s)" % (
      what, part.dtype.name, value, error)) from error
  if not part.shape.is_compatible_with(array.shape):
    raise ValueError("%s must have the shape %s, got %s: %r" % (
      what, part.shape, array.shape, value))
  return array


def _stacked(elements):
  return [_padded(arrays) for arrays in zip(*elements)]


def _padded(arrays):
  """Stacks arrays, padded at the end of each dimension with zeros, or empty strings."""
  shapes = {array.shape for array in arrays}
  if len(shapes) == 1:
    return np.stack(arrays)
  largest = np.max(list(shapes), axis=0)
  empty = b"" if arrays[0].dtype == object else 0
  found = np.full([len(arrays), *largest], empty, arrays[0].dtype)
  for number, array in enumerate(arrays):
    found[(number, *map(slice, array.shape))] = array
  return found
