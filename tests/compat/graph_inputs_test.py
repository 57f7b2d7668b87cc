from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import graph_inputs


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def test_an_input_is_replaced_wherever_it_stands():
  a, b = tf.constant(2.0), tf.constant(5.0)
  product, difference = a * a, a - 1.0
  other = a + 1.0
  assert graph_inputs.replace_input(a, b, [product.op, difference.op]) == 3
  with tf.Session() as session:
    assert session.run([product, difference, other]) == [25.0, 4.0, 3.0]
  assert [each.op for each in product.op.inputs] == [b.op, b.op]
  assert a.consumers() == [other.op]


def test_within_a_loop_of_either_control_flow():
  """The value comes into the loop from outside, by an operation that is a consumer as any other."""
  a, b = tf.constant(2.0), tf.constant(5.0)
  result = tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x + a), [0, 0.0])[1]
  assert graph_inputs.replace_input(a, b, a.consumers()) >= 1
  with tf.Session() as session:
    assert session.run(result) == 15.0


def test_gradients_take_the_new_way():
  a, b = tf.constant(2.0), tf.constant(5.0)
  loss = tf.square(a)
  graph_inputs.replace_input(a, 3.0 * b, [loss.op])
  with tf.Session() as session:
    assert session.run(tf.gradients(loss, b)[0]) == 90.0
  assert tf.gradients(loss, a) == [None]
