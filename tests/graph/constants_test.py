from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.graph import constants


def test_strings_count_with_their_length():
  with tf.Graph().as_default() as graph:
    tf.constant([b"a" * constants.LARGE], name="one_long_string")
    tf.constant([b"a"] * 10, name="short_strings")
    tf.constant(np.arange(6, dtype=np.int64), name="numbers")
  found = constants.constant_bytes(graph)
  assert found["numbers"] == 48 and found["short_strings"] < 1000
  assert list(constants.large_constants(graph)) == ["one_long_string"]
