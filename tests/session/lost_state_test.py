from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.session import lost_state


@pytest.mark.parametrize("use_resource", [True, False])
@pytest.mark.parametrize("sharded", [True, False])
def test_only_the_lost_variables_are_restored(tmp_path, use_resource, sharded):
  with tf.Graph().as_default():
    with tf.variable_scope("", use_resource=use_resource):
      rows = tf.get_variable("rows", [4, 2], initializer=tf.zeros_initializer(),
                             partitioner=tf.fixed_size_partitioner(2))
      bias = tf.get_variable("bias", initializer=1.0)
      unsaved = tf.get_variable("unsaved", initializer=7.0)
    tf.train.MomentumOptimizer(0.5, 0.9).minimize(tf.reduce_sum(tf.convert_to_tensor(rows)) * bias)
    variables = tf.global_variables()
    saver = tf.train.Saver([v for v in variables if v is not unsaved], sharded=sharded)
    parts = {v.op.name: v for v in variables}
    assert {"rows/part_0", "rows/part_1", "rows/part_0/Momentum"} <= set(parts)
    with tf.Session() as session:
      for number, variable in enumerate(variables):
        variable.load(np.full(variable.shape, number, np.float32), session)
      path = saver.save(session, str(tmp_path / "model"))
    lost = {"rows/part_1", "rows/part_1/Momentum", "unsaved"}
    with tf.Session() as session:
      for name in set(parts) - lost:
        parts[name].load(np.full(parts[name].shape, 100.0, np.float32), session)
      missing = session.run(tf.report_uninitialized_variables(variables))
      assert {name.decode() for name in missing} == lost
      assert lost_state.restore_lost(session, saver, path, sorted(lost))
      for number, variable in enumerate(variables):
        name = variable.op.name
        value = 100.0 if name not in lost else 7.0 if name == "unsaved" else float(number)
        np.testing.assert_array_equal(session.run(variable), np.full(variable.shape, value))


def test_a_saver_that_restores_a_table_cannot_be_divided(tmp_path):
  with tf.Graph().as_default() as graph:
    tf.get_variable("bias", initializer=1.0, use_resource=True)
    saver = tf.train.Saver()
    restore = graph.get_operation_by_name(saver.saver_def.restore_op_name)
    assert set(lost_state.find_assigns(graph, saver)) == {"bias"}
    table = tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.int64)
    one = tf.constant([1], tf.int64)
    insert = tf.raw_ops.LookupTableImportV2(table_handle=table, keys=one, values=one)
    with tf.control_dependencies([restore, insert]):
      both = tf.no_op("restore_both")
    saver.saver_def.restore_op_name = both.name
    assert lost_state.find_assigns(graph, saver) is None
    with tf.Session() as session:
      assert not lost_state.restore_lost(session, saver, str(tmp_path / "model"), ["bias"])
