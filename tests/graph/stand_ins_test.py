from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps import graph as graph_lib


def test_a_feed_of_a_tensor_names_what_stands_in_for_it_also_by_others():
  with tf.Graph().as_default() as graph:
    value = tf.constant(1.0, name="value")
    used = value * 2.0
    copy, second = tf.identity(value, name="copy"), tf.identity(value, name="second")
    assert graph_lib.stand_in(value, copy, [used.op]) == 1
    assert graph_lib.stand_in(value, second, [used.op]) == 0  # nothing uses it any more
    assert graph_lib.stand_in(copy, second, [used.op]) == 1
    assert used.op.inputs[0] is second
    for key in (value, "value:0"):
      assert graph_lib.fed_stand_ins(graph, [key]) == {"copy:0": key, "second:0": key}
    assert graph_lib.fed_stand_ins(graph, [copy]) == {"second:0": copy}
    assert graph_lib.fed_stand_ins(graph, [used, "no such:0", ("a", "pair")]) == {}
    with tf.Session() as session:
      feed = {value: 5.0}
      feed.update((name, 5.0) for name in graph_lib.fed_stand_ins(graph, [value]))
      assert session.run(used, feed) == 10.0
  with tf.Graph().as_default() as other:
    assert graph_lib.fed_stand_ins(other, [tf.constant(0.0)]) == {}
