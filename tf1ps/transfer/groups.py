"""Which small tensors travel together.

A message costs about 0.2 ms of CPU over both its ends, whatever its size, and putting tensors
together costs a copy and an operation or two for each of them. Of the tensors that go the same way
(from one task to another, with one dtype):

1. Those of `pack_bytes` or more travel alone: the copy would cost more than the message.
2. Many of one inner shape (all dimensions but the first) are put one behind the other as they are,
   which takes no further operation for each.
3. The others are flattened first, and go together.
4. A message above `MESSAGE_BYTES` becomes several of about equal size, in the order of the tensors,
   so that the model computes with the first ones while the next are on their way.
"""

from __future__ import annotations

from typing import List, NamedTuple, Sequence, Tuple

DEFAULT_PACK_BYTES = 1 << 16  # measured by `python -m benchmarks pack_bytes`
MESSAGE_BYTES = 1 << 20
_MANY = 32  # members for which a message of their own costs less than flattening each


class Group(NamedTuple):
  """Tensors that travel as one."""

  members: Tuple[int, ...]  # their indices, in order
  is_flat: bool  # whether each is flattened before


def make_groups(shapes: Sequence[Sequence[int]], itemsize: int, pack_bytes: int) -> List[Group]:
  """Groups tensors of one dtype that go the same way.

  Args:
    shapes: theirs, fully known.
    itemsize: bytes of an element.
    pack_bytes: tensors of so many bytes or more travel alone.

  Returns:
    The groups with two members or more; who is in none of them travels alone.

  Raises:
    ValueError: `pack_bytes` is below 0.
  """
  check_pack_bytes(pack_bytes)
  sizes = [itemsize * _elements(shape) for shape in shapes]
  by_inner = {}
  for index, shape in enumerate(shapes):
    if sizes[index] < pack_bytes:
      by_inner.setdefault(tuple(shape[1:]) if len(shape) > 1 else (), []).append(index)
  groups, rest = [], []
  for inner, members in by_inner.items():
    if inner and len(members) >= _MANY:
      groups += _divided(members, sizes, is_flat=False)
    else:
      rest += members
  groups += _divided(sorted(rest), sizes, is_flat=True)
  return [group for group in groups if len(group.members) > 1]


def check_pack_bytes(pack_bytes: int) -> None:
  """Refuses a threshold that is none; raises ValueError."""
  if isinstance(pack_bytes, bool) or not isinstance(pack_bytes, int) or pack_bytes < 0:
    raise ValueError("pack_bytes must be a number of bytes, 0 (nothing is packed) or more, got %r"
                     % (pack_bytes,))


def _divided(members, sizes, is_flat) -> List[Group]:
  """One group, or several of about equal bytes."""
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
