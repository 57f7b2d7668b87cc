from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.transfer import flat_buffers
from tf1ps.transfer.flat_buffers import Group


def test_small_tensors_go_together_and_large_ones_alone():
  shapes = [[4], [], [8, 8], [2, 3], [16, 4]]
  assert flat_buffers.make_groups(shapes, 4, 256) == [Group((0, 1, 3), True)]
  assert flat_buffers.make_groups(shapes, 4, 257) == [Group((0, 1, 2, 3, 4), True)]
  assert flat_buffers.make_groups(shapes, 8, 257) == [Group((0, 1, 3), True)]
  assert flat_buffers.make_groups(shapes, 4, 0) == []


def test_one_alone_is_no_group():
  assert flat_buffers.make_groups([[4], [1000]], 4, 100) == []
  assert flat_buffers.make_groups([], 4, 100) == []


def test_many_of_one_inner_shape_go_as_they_are():
  shapes = [shape for _ in range(32) for shape in ([3, 5], [7])]
  assert flat_buffers.make_groups(shapes, 4, 100) == [
    Group(tuple(range(0, 64, 2)), False), Group(tuple(range(1, 64, 2)), True)]
  assert flat_buffers.make_groups(shapes[2:], 4, 100) == [Group(tuple(range(62)), True)]


def test_a_message_above_a_megabyte_becomes_several_in_order():
  shapes = [[64, 64]] * 100 + [[64]] * 2  # 16 KiB each, and 256 bytes
  made = flat_buffers.make_groups(shapes, 4, 1 << 16)
  assert made == [Group(tuple(range(50)), False), Group(tuple(range(50, 100)), False),
                  Group((100, 101), True)]


def test_one_that_would_be_left_over_by_the_division_travels_alone():
  half = [1 << 17]  # half a megabyte
  made = flat_buffers.make_groups([half, half, half], 4, 1 << 20)
  assert made == [Group((0, 1), True)]


@pytest.mark.parametrize("pack_bytes", [-1, 1.5, True, None, "64k"])
def test_a_threshold_that_is_none_is_refused(pack_bytes):
  with pytest.raises(ValueError, match="pack_bytes must be a number of bytes"):
    flat_buffers.make_groups([[1]], 4, pack_bytes)


@pytest.mark.parametrize("is_flat, shapes, length, operations", [
  (True, [[2, 3], [], [4]], [11], 2), (False, [[2, 3], [1, 3]], [3, 3], 0)])
def test_split_reverses_concat(is_flat, shapes, length, operations):
  values = [np.float32(np.random.RandomState(i).uniform(size=shape))
            for i, shape in enumerate(shapes)]
  with tf.Graph().as_default() as graph, tf.Session() as session:
    tensors = [tf.constant(value) for value in values]
    known = [tensor.shape for tensor in tensors]
    one = flat_buffers.concat(tensors, known, is_flat)
    parts = flat_buffers.split(one, known, is_flat)
    assert one.shape.as_list() == length
    assert [part.shape.as_list() for part in parts] == shapes
    assert sum(op.type == "Reshape" for op in graph.get_operations()) == 2 * operations
    for part, value in zip(session.run(parts), values):
      np.testing.assert_array_equal(part, value)
