from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.transfer import joined


@pytest.mark.parametrize("is_flat, shapes, length, operations", [
  (True, [[2, 3], [], [4]], [11], 2), (False, [[2, 3], [1, 3]], [3, 3], 0)])
def test_what_was_joined_is_divided_again(is_flat, shapes, length, operations):
  values = [np.float32(np.random.RandomState(i).uniform(size=shape))
            for i, shape in enumerate(shapes)]
  with tf.Graph().as_default() as graph, tf.Session() as session:
    tensors = [tf.constant(value) for value in values]
    known = [tensor.shape for tensor in tensors]
    one = joined.join(tensors, known, is_flat)
    parts = joined.divide(one, known, is_flat)
    assert one.shape.as_list() == length
    assert [part.shape.as_list() for part in parts] == shapes
    assert sum(op.type == "Reshape" for op in graph.get_operations()) == 2 * operations
    for part, value in zip(session.run(parts), values):
      np.testing.assert_array_equal(part, value)
