"""Gradients of several towers become one: exact values, dense, sparse, mixed and absent."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.replication import gradients


@pytest.fixture
def variables():
  with tf.Graph().as_default():
    yield [tf.get_variable(name, shape) for name, shape in (("a", [2]), ("b", [3, 2]), ("c", []))]


def slices(rows, indices, dtype=tf.int64):
  return tf.IndexedSlices(tf.constant(rows, tf.float32), tf.constant(indices, dtype),
                          tf.constant([3, 2], tf.int64))


def dense(gradient):
  with tf.Session() as session:
    return session.run(tf.convert_to_tensor(gradient)).tolist()


@pytest.mark.parametrize("reduction, divisor", [("mean", 2), ("sum", 1)])
def test_what_each_kind_becomes(variables, reduction, divisor):
  a, b, c = variables
  reduced = gradients.reduce_gradients(
    [[(tf.constant([2.0, 4.0]), a), (slices([[2.0, 2.0]], [1]), b), (None, c)],
     [(tf.constant([6.0, 0.0]), a), (slices([[4.0, 0.0], [8.0, 8.0]], [1, 2], tf.int32), b),
      (None, c)]], reduction)
  assert [variable for _, variable in reduced] == variables and reduced[2][0] is None
  assert dense(reduced[0][0]) == [8 / divisor, 4 / divisor]
  assert isinstance(reduced[1][0], tf.IndexedSlices) and reduced[1][0].indices.dtype == tf.int64
  # Row 2 is in one tower only, and is divided by two like the others.
  assert dense(reduced[1][0]) == [[0, 0], [6 / divisor, 2 / divisor], [8 / divisor] * 2]


def test_a_tower_that_does_not_use_a_variable_counts_as_zero(variables):
  a, b, _ = variables
  reduced = gradients.reduce_gradients(
    [[(None, a), (slices([[3.0, 3.0]], [0]), b)], [(tf.constant([3.0, 6.0]), a), (None, b)],
     [(None, a), (None, b)]])
  assert dense(reduced[0][0]) == [1, 2]
  assert isinstance(reduced[1][0], tf.IndexedSlices)
  assert dense(reduced[1][0]) == [[1, 1], [0, 0], [0, 0]]


def test_dense_and_sparse_gradients_of_one_variable_become_dense(variables):
  b = variables[1]
  (gradient, _), = gradients.reduce_gradients(
    [[(slices([[2.0, 2.0], [2.0, 2.0]], [0, 0]), b)], [(tf.ones([3, 2]), b)]])
  assert not isinstance(gradient, tf.IndexedSlices)
  assert dense(gradient) == [[2.5, 2.5], [0.5, 0.5], [0.5, 0.5]]


def test_a_sum_above_float16_has_a_mean(variables):
  (gradient, _), = gradients.reduce_gradients(
    [[(tf.constant([value, 0.0], tf.float16), variables[0])] for value in (40000, 60000)])
  assert gradient.dtype == tf.float16 and dense(gradient) == [49984.0, 0.0]  # the nearest one


def test_one_tower_gives_what_it_has(variables):
  sparse = slices([[2.0, 2.0]], [1])
  (gradient, _), (none, _) = gradients.reduce_gradients(
    [[(sparse, variables[1]), (None, variables[2])]])
  assert gradient is sparse and none is None


def test_it_is_computed_beside_the_variable_where_asked():
  with tf.Graph().as_default(), tf.device("/job:worker/task:1"):
    with tf.device("/job:ps/task:0"):
      a = tf.get_variable("a", [2])
    towers = [[(tf.ones([2]), a)]] * 2
    (here, _), = gradients.reduce_gradients(towers)
    (beside, _), = gradients.reduce_gradients(towers, beside_variables=True)
  assert [here.device, beside.device] == ["/job:worker/task:1", "/job:ps/task:0"]


def test_clipping_takes_the_norm_of_what_is_applied(variables):
  a, b, c = variables
  # Row 1 is 3 + 3 and 4 + 4: with the dense one of 0 a norm of 10, where the rows alone have 7.07.
  clipped = gradients.clip_gradients(
    [(tf.zeros([2]), a), (slices([[3.0, 4.0], [3.0, 4.0]], [1, 1]), b), (None, c)], 5.0)
  assert [variable for _, variable in clipped] == variables and clipped[2][0] is None
  np.testing.assert_allclose(dense(clipped[1][0]), [[0, 0], [3, 4], [0, 0]], rtol=1e-6)
  (small, _), = gradients.clip_gradients([(tf.constant([3.0, 4.0]), a)], 5.0)
  assert dense(small) == [3, 4]


def test_the_mean_loss():
  with tf.Graph().as_default():
    assert dense(gradients.mean_loss([tf.constant(1.0), tf.constant(4.0)])) == 2.5
    assert dense(gradients.mean_loss([tf.constant(4.0)])) == 4


@pytest.mark.parametrize("call, said", [
  (lambda a, b: gradients.reduce_gradients([[(None, a)]], "max"), "mean or sum, got 'max'"),
  (lambda a, b: gradients.reduce_gradients([]), "at least one tower's gradients, got none"),
  (lambda a, b: gradients.reduce_gradients([[(None, a)], [(None, b)]]),
   r"tower 1 has gradients for the variables \['b:0'\] and tower 0 for \['a:0'\]"),
  (lambda a, b: gradients.clip_gradients([(None, a)], 0), "clip_norm must be above 0, got 0"),
])
def test_arguments_are_checked(variables, call, said):
  with pytest.raises(ValueError, match=said):
    call(*variables[:2])
