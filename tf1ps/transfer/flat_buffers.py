"""Decides which small tensors travel as one message, and concatenates and splits them.

A message of any size costs about 0.2 ms of CPU on both ends together. Concatenation costs a copy,
and an operation or two per tensor. Tensors of one dtype that go from one task to another task are
grouped by these rules:

1. A tensor of `pack_bytes` or more travels alone: its copies would cost more than its message.
2. Many tensors of one inner shape (all dimensions but the first) are concatenated without being
   flattened, which needs no operation per tensor.
3. The other tensors are flattened and concatenated.
4. A group above `MESSAGE_BYTES` becomes several groups of about equal size, in the tensors' order.
   The model computes with the first values while the next values travel.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

import tensorflow.compat.v1 as tf

MESSAGE_BYTES = 1 << 20
_MANY = 32  # for so many tensors, a separate message costs less than flattening each tensor


class Group(NamedTuple):
  """Tensors that travel as one message."""

  members: Tuple[int, ...]  # the indices of the tensors, in order
  is_flat: bool  # whether each is flattened before the concatenation


def make_groups(shapes: Sequence[Sequence[int]], itemsize: int, pack_bytes: int) -> List[Group]:
  """Groups tensors of one dtype, of these fully known shapes, between two tasks.

  Returns the groups of two tensors or more. All other tensors, including tensors of `pack_bytes` or
  more, travel alone. Raises ValueError if `pack_bytes` is not a number of bytes.
  """
  check_pack_bytes(pack_bytes)
  sizes = [itemsize * _elements(shape) for shape in shapes]
  by_inner = {}
  for index, shape in enumerate(shapes):
    if sizes[index] < pack_bytes:
      by_inner.setdefault(tuple(shape[1:]) if len(shape) > 1 else (), []).append(index)
  groups, flat = [], []
  for inner, members in by_inner.items():
    if inner and len(members) >= _MANY:
      groups += _divide(members, sizes, is_flat=False)
    else:
      flat += members
  groups += _divide(sorted(flat), sizes, is_flat=True)
  return [group for group in groups if len(group.members) > 1]


def check_pack_bytes(pack_bytes: int) -> None:
  """Raises ValueError if a threshold is not a number of bytes."""
  if isinstance(pack_bytes, bool) or not isinstance(pack_bytes, int) or pack_bytes < 0:
    raise ValueError("pack_bytes must be a number of bytes, 0 (nothing is packed) or more, got %r"
                     % (pack_bytes,))


def lengths(shapes: Sequence[tf.TensorShape], is_flat: bool) -> List[int]:
  """Returns the size of each tensor in the first dimension of the buffer."""
  return [shape.num_elements() if is_flat else shape.as_list()[0] for shape in shapes]


def concat(tensors: Sequence[tf.Tensor], shapes: Sequence[tf.TensorShape],
           is_flat: bool) -> tf.Tensor:
  """Concatenates tensors of known shapes into one buffer, on the current device."""
  return tf.concat([tf.reshape(tensor, [-1]) if is_flat and shape.ndims != 1 else tensor
                    for tensor, shape in zip(tensors, shapes)], 0)


def split(buffer: tf.Tensor, shapes: Sequence[tf.TensorShape], is_flat: bool) -> List[tf.Tensor]:
  """Reverses `concat`, on the current device."""
  parts = tf.split(buffer, lengths(shapes, is_flat))
  parts = [tf.reshape(part, shape) if is_flat and shape.ndims != 1 else part
           for part, shape in zip(parts, shapes)]
  for part, shape in zip(parts, shapes):
    part.set_shape(shape)
  return parts


def _divide(members, sizes, is_flat) -> List[Group]:
  """Makes a group, or several groups of about equal bytes."""
  total = sum(sizes[index] for index in members)
  count = max(1, -(-total // MESSAGE_BYTES))
  parts = [[] for _ in range(count)]
  before = 0
  for index in members:
    parts[min(count - 1, before * count // max(1, total))].append(index)
    before += sizes[index]
  return [Group(tuple(part), is_flat) for part in parts if part]


def _elements(shape) -> int:
  product = 1
  for dimension in shape:
    product *= int(dimension)
  return product
