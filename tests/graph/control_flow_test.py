from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.graph import control_flow


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.mark.parametrize("time", [1, 2])
def test_each_test_begins_with_the_switches_of_tensorflows_import(time):
  """The fixture `tensorflow_stays` of all tests takes back what the first of these two leaves."""
  is_new = not tf.__version__.startswith("1.")
  assert tf.control_flow_v2_enabled() == tf.resource_variables_enabled() == is_new
  (tf.disable_control_flow_v2 if is_new else tf.enable_control_flow_v2)()
  (tf.disable_resource_variables if is_new else tf.enable_resource_variables)()


def test_depths():
  tf.disable_control_flow_v2()
  x = tf.placeholder(tf.float32, [])
  inside = []

  def note(tensor):
    inside.append(tensor.op.name)
    return tensor

  either = tf.cond(x > 0, lambda: tf.cond(x > 1, lambda: note(x * 2), lambda: x) + 1, lambda: x)
  _, total = tf.while_loop(
    lambda i, _: i < 3, lambda i, t: (i + 1, note(t + x)), [0, 0.0])
  after = either + total
  depths = control_flow.depths(control_flow.in_order(tf.get_default_graph().get_operations()))
  assert [depths[name] for name in inside] == [(2, 0), (1, 1)]
  assert depths[after.op.name] == depths[either.op.name] == depths[total.op.name] == (0, 0)
