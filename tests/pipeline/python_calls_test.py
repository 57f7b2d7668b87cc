from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import python_calls


def numbers():
  return tf.data.Dataset.range(3)


def in_map():
  return numbers().map(lambda x: tf.numpy_function(lambda y: y, [x], tf.int64))


def from_generator():
  return tf.data.Dataset.from_generator(lambda: iter(range(3)), tf.int64)


@pytest.mark.parametrize("make, expected", [
  (numbers, False), (lambda: numbers().map(lambda x: x + 1), False), (in_map, True),
  (lambda: numbers().interleave(lambda x: in_map(), cycle_length=1), True),
  (from_generator, True)])
@pytest.mark.parametrize("iterator", [
  tf.data.make_one_shot_iterator, tf.data.make_initializable_iterator])
def test_a_pipeline_that_calls_python_is_known(make, expected, iterator):
  with tf.Graph().as_default() as graph:
    iterator(make()).get_next()
    assert python_calls.has_python_calls(graph) == expected


def test_one_of_the_graphs_own_operations():
  with tf.Graph().as_default() as graph:
    tf.py_func(lambda: np.float32(1), [], tf.float32)
    assert python_calls.has_python_calls(graph)
