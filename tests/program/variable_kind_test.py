from __future__ import annotations

import pytest
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


@pytest.mark.parametrize("kind, op_type", [("resource", "VarHandleOp"), ("ref", "VariableV2")])
def test_it_holds_for_every_variable_inside_and_for_none_outside(kind, op_type):
  with tf.Graph().as_default():
    before = tf.Variable(1.).op.type
  with tf.Graph().as_default():
    with variable_kind.kind_scope(kind):
      assert make_all_kinds() == {op_type}
      names = {variable.op.name for variable in tf.global_variables()}
    assert {"a", "b", "inner/c", "global_step", "a/Adam"} <= names
    assert tf.Variable(1.).op.type == before
    assert tf.get_variable("outside", [1]).op.type == before
  with tf.Graph().as_default():
    assert tf.Variable(1.).op.type == before


def test_it_keeps_the_scope_around_it():
  with tf.Graph().as_default(), tf.variable_scope("outer"):
    with variable_kind.kind_scope("resource"):
      assert tf.get_variable("a", [1]).op.name == "outer/a"


def test_another_kind_is_refused():
  with pytest.raises(ValueError, match="variables must be resource or ref, got 'reference'"):
    with variable_kind.kind_scope("reference"):
      pass
