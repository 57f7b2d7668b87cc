from __future__ import annotations

import pytest

from tf1ps.transfer import groups
from tf1ps.transfer.groups import Group


def test_small_ones_go_together_and_large_ones_alone():
  shapes = [[4], [], [8, 8], [2, 3], [16, 4]]
  assert groups.make_groups(shapes, 4, 256) == [Group((0, 1, 3), True)]
  assert groups.make_groups(shapes, 4, 257) == [Group((0, 1, 2, 3, 4), True)]
  assert groups.make_groups(shapes, 8, 257) == [Group((0, 1, 3), True)]
  assert groups.make_groups(shapes, 4, 0) == []


def test_one_alone_is_no_group():
  assert groups.make_groups([[4], [1000]], 4, 100) == []
  assert groups.make_groups([], 4, 100) == []


def test_many_of_one_inner_shape_go_as_they_are():
  shapes = [shape for _ in range(32) for shape in ([3, 5], [7])]
  assert groups.make_groups(shapes, 4, 100) == [
    Group(tuple(range(0, 64, 2)), False), Group(tuple(range(1, 64, 2)), True)]
  assert groups.make_groups(shapes[2:], 4, 100) == [Group(tuple(range(62)), True)]


def test_a_message_above_a_megabyte_becomes_several_in_order():
  shapes = [[64, 64]] * 100 + [[64]] * 2  # 16 KiB each, and 256 bytes
  made = groups.make_groups(shapes, 4, 1 << 16)
  assert made == [Group(tuple(range(50)), False), Group(tuple(range(50, 100)), False),
                  Group((100, 101), True)]


def test_one_that_would_be_left_over_by_the_division_travels_alone():
  half = [1 << 17]  # half a megabyte
  made = groups.make_groups([half, half, half], 4, 1 << 20)
  assert made == [Group((0, 1), True)]


@pytest.mark.parametrize("pack_bytes", [-1, 1.5, True, None, "64k"])
def test_a_threshold_that_is_none_is_refused(pack_bytes):
  with pytest.raises(ValueError, match="pack_bytes must be a number of bytes"):
    groups.make_groups([[1]], 4, pack_bytes)
