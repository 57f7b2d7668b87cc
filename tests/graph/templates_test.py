from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps import graph as graph_lib

DEVICE = "/job:ps/task:1"


def build_sum():
  given, more = tf.placeholder(tf.float32, [], "given"), tf.placeholder(tf.float32, [], "more")
  with tf.get_default_graph().colocate_with(given.op):
    total = given + tf.constant(2.0, name="addend")
  return [given, more], {"total": total, "parts": [tf.identity(more), total.op]}


def test_the_operations_are_built_once_and_added_with_other_constants_and_names():
  built = []
  template = graph_lib.Template(lambda: built.append(1) or build_sum())
  with tf.Graph().as_default() as graph:
    one, other = tf.constant(1.0), tf.constant(10.0)
    first = template.add([one, other], "", {}, "first")
    with tf.name_scope("outer"):
      second = template.add([other, one], "", {
        "addend": graph_lib.constant_attributes(5.0, tf.float32)}, "second")
    with tf.Session() as session:
      assert session.run([first["total"], first["parts"][0]]) == [3.0, 10.0]
      assert session.run([second["total"], second["parts"][0]]) == [15.0, 1.0]
  assert built == [1]
  assert first["parts"][1] is first["total"].op and first["total"].op.name.startswith("first/")
  assert second["total"].op.name.startswith("outer/second/")
  assert not [op for op in graph.get_operations() if op.type == "Placeholder"]


def test_the_callers_devices_do_not_count_and_its_control_dependencies_do():
  template = graph_lib.Template(build_sum)
  with tf.Graph().as_default() as graph:
    given = tf.constant(1.0)
    waited_for = tf.no_op()

    def on_the_worker(op):
      return "/job:worker/task:0"

    with tf.device(on_the_worker), tf.control_dependencies([waited_for]):
      added = template.add([given, given], DEVICE, {}, "beside")
    assert added["total"].device == DEVICE
    assert waited_for in added["total"].op.control_inputs
    assert {op.device for op in graph.get_operations() if op.name.startswith("beside/")} == {DEVICE}
    added = template.add([given, given], "", {}, "beside")
  assert added["total"].device == "/device:CPU:0" and not added["total"].op.control_inputs


def test_an_attribute_of_a_resource_is_replaced():
  def build():
    given = tf.placeholder(tf.int64, [], "given")
    table = tf.raw_ops.MutableHashTableV2(
      key_dtype=tf.int64, value_dtype=tf.int64, shared_name="x", name="table")
    return [given], tf.raw_ops.LookupTableFindV2(
      table_handle=table, keys=given, default_value=given)

  template = graph_lib.Template(build)
  with tf.Graph().as_default():
    found = template.add([tf.constant(7, tf.int64)], "", {
      "table": {"shared_name": graph_lib.text_attribute("mine"),
                "container": graph_lib.text_attribute("c")}}, "beside")
    table = found.op.inputs[0].op
    assert (table.get_attr("shared_name"), table.get_attr("container")) == (b"mine", b"c")
    with tf.Session() as session:
      assert session.run(found) == 7
