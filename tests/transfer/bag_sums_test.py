from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import partitioning
from tf1ps.transfer import bag_sums

TABLE = np.arange(10, dtype=np.float32).reshape(5, 2)


def evaluate(fetches):
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    return session.run(fetches)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_sums_and_gradients_of_two_parts(use_resource):
  with tf.Graph().as_default():
    table = tf.get_variable("table", initializer=tf.constant(TABLE), use_resource=use_resource,
                            partitioner=tf.fixed_size_partitioner(2))
    weights = tf.constant([1., 2, 3])
    sums = bag_sums.sum_rows(
      partitioning.parts_of_table(table), tf.constant([4, 0, 4]), tf.constant([0, 2, 2]), 4,
      weights)
    slope = tf.constant([[1., 1], [0, 0], [10, 100], [0, 0]])
    first, second, by_weights = tf.gradients(tf.reduce_sum(sums * slope), list(table) + [weights])
    found = evaluate([sums, first, second, by_weights])
  assert found[0].tolist() == [[8, 9], [0, 0], [0 + 24, 2 + 27], [0, 0]]
  # (values, indices, shape): the rows 0 to 2 are in the first part, 3 and 4 in the second.
  assert [each.tolist() for each in found[1]] == [[[20, 200]], [0], [3, 2]]
  assert [each.tolist() for each in found[2]] == [[[1, 1], [30, 300]], [1, 1], [2, 2]]
  assert found[3].tolist() == [17, 100, 80 + 900]


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_the_gradient_is_made_beside_the_variable(use_resource):
  with tf.Graph().as_default():
    with tf.device("/job:ps/task:3"):
      table = tf.get_variable("table", initializer=TABLE, use_resource=use_resource)
    with tf.device("/job:worker"):
      ids, weights = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
      sums = bag_sums.sum_rows(partitioning.parts_of_table(table), ids, ids, 4, weights)
      gradient, = tf.gradients(tf.square(sums), table)
    for each in (sums, gradient.values, gradient.indices, gradient.dense_shape):
      assert tf.DeviceSpec.from_string(each.device).task == 3 or "loc:@" in str(
        each.op.colocation_groups())


def test_the_part_of_an_id():
  with tf.Graph().as_default():
    part = bag_sums.part_of(tf.constant([-1, 0, 2, 3, 4, 5, 9]), [0, 3, 5])
    assert evaluate(part).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_dividing_keeps_the_order():
  with tf.Graph().as_default():
    place = tf.constant([1, 0, 1, 1])
    divided = bag_sums.divide([tf.constant([4, 5, 6, 7]), None], place, 3)
    assert [other for _, other in divided] == [None] * 3
    assert [each.tolist() for each in evaluate([one for one, _ in divided])] == [[5], [4, 6, 7], []]
