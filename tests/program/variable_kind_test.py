from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.program import variable_kind


def make_all_kinds():
  """Makes variables in every way that a program may; returns the types of their operations."""
  a = tf.get_variable("a", [2])
  tf.Variable(1., name="b")
  with tf.variable_scope("inner"):
    tf.get_variable("c", [2])
    tf.get_local_variable("d", [2])
  tf.train.get_or_create_global_step()
  tf.metrics.mean(tf.constant(1.))
  tf.train.AdamOptimizer().minimize(tf.reduce_sum(a))
  return {variable.op.type for variable in tf.global_variables() + tf.local_variables()}


def test_it_holds_for_every_variable_inside_and_for_none_outside():
  with tf.Graph().as_default():
    before = tf.Variable(1.).op.type
  with tf.Graph().as_default():
    with variable_kind.resource_variables():
      assert make_all_kinds() == {"VarHandleOp"}
      names = {variable.op.name for variable in tf.global_variables()}
    assert {"a", "b", "inner/c", "global_step", "a/Adam"} <= names
    assert tf.Variable(1.).op.type == before
    assert tf.get_variable("outside", [1]).op.type == before
  with tf.Graph().as_default():
    assert tf.Variable(1.).op.type == before


def test_it_keeps_the_scope_around_it():
  with tf.Graph().as_default(), tf.variable_scope("outer"):
    with variable_kind.resource_variables():
      assert tf.get_variable("a", [1]).op.name == "outer/a"


def test_a_program_may_ask_for_ref_variables():
  with tf.Graph().as_default(), variable_kind.resource_variables():
    with tf.variable_scope("own", use_resource=False):
      assert make_all_kinds() == {"VariableV2"}
      assert tf.get_variable("e", [1]).op.type == "VariableV2"
