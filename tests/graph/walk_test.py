from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.graph import walk


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def test_needed_is_what_leads_there_in_the_order_of_the_graph():
  a, b = tf.constant(1.0, name="a"), tf.constant(2.0, name="b")
  tf.add(a, b, name="unused")
  with tf.control_dependencies([tf.no_op("before")]):
    c = tf.identity(b, name="c")
  assert [op.name for op in walk.needed_ops([c.op])] == ["b", "before", "c"]
  assert [op.name for op in walk.needed_ops([c.op, a.op])] == ["a", "b", "before", "c"]
  assert walk.needed_ops([]) == []


def test_what_a_fed_tensor_is_made_of_is_not_needed():
  a = tf.constant(1.0, name="a")
  b = tf.identity(a, name="b")
  c = tf.identity(b, name="c")
  assert [op.name for op in walk.needed_ops([c.op], [b])] == ["c"]
  assert [op.name for op in walk.needed_ops([c.op], [a])] == ["b", "c"]


def test_a_walk_up_ends_where_it_is_stopped():
  a = tf.constant(1.0, name="a")
  b = tf.identity(a, name="b")
  with tf.control_dependencies([b]):
    c = tf.no_op("c")
  assert [op.name for op in walk.needed_ops([c], stop=lambda op: op is b.op)] == ["c"]
  assert walk.needed_ops([c], stop=lambda op: op is c) == []


def test_descendants_need_an_operation_by_an_input_or_a_control_input():
  a, other = tf.constant(1.0, name="a"), tf.constant(1.0, name="other")
  b = tf.add(a, a, name="b")
  with tf.control_dependencies([b]):
    c = tf.identity(other, name="c")
  outside = tf.identity(c, name="outside")
  consumers = walk.consumers_of([a.op, other.op, b.op, c.op])
  assert consumers == {a.op: [b.op], other.op: [c.op], b.op: [c.op], c.op: []}
  assert walk.descendants([a.op], consumers) == {a.op, b.op, c.op}
  assert walk.descendants([other.op], consumers) == {other.op, c.op}
  assert outside.op not in consumers


def test_a_value_is_followed_through_operations_that_pass_it_on():
  a = tf.constant([1.0], name="a")
  same = tf.identity(tf.reshape(a, [1]))
  used = tf.negative(same)
  assert walk.source_op(same, ["Identity", "Reshape"]) is a.op
  assert walk.source_op(same, ["Identity"]).type == "Reshape"
  assert list(walk.uses([a], ["Identity", "Reshape"])) == [used.op]
