from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.replication import staleness


@pytest.mark.parametrize("use_resource", [True, False])
def test_the_age_is_how_many_updates_came_between(use_resource):
  with tf.Graph().as_default(), tf.Session() as session:
    step = tf.get_variable("step", initializer=tf.zeros([], tf.int64), use_resource=use_resource,
                           trainable=False)
    others = tf.placeholder(tf.int64, [])
    begun = staleness.begin_gradient_age(step)
    with tf.control_dependencies([begun]):
      between = tf.assign_add(step, others)
    with tf.control_dependencies([between]):
      own = tf.assign_add(step, 1)
    age = staleness.gradient_age(step, begun, own.op)
    session.run(step.initializer)
    assert [session.run(age, {others: n}) for n in (0, 3, 0, 1, 17)] == [0, 3, 0, 1, 17]


def test_ages_are_collected():
  ages = staleness.Ages()
  assert str(ages) == "staleness 0.0 (0 at most)"
  for age in (0, 2, 2, 3):
    ages.add(age)
  assert (ages.gradients, ages.mean, ages.highest) == (4, 1.75, 3)
  assert str(ages) == "staleness 1.8 (3 at most)"
  histogram = ages.histogram()
  assert (histogram.min, histogram.max, histogram.num, histogram.sum) == (0, 3, 4, 7)
  assert list(histogram.bucket_limit) == [0.5, 2.5, 3.5] and list(histogram.bucket) == [1, 2, 1]
  assert histogram.sum_squares == 17


def test_ages_that_were_counted_elsewhere():
  ages = staleness.Ages({0: 1, 5: 2})
  assert (ages.gradients, ages.total, ages.highest) == (3, 10, 5)
