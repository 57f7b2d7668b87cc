from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import device_setter, load_table, partitioning
from tf1ps.transfer import embedding

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
SPARSE = [[0, 0], [1, 0]], [3, 1], [2, 1]
LOOKUPS = {
  "lookup": lambda table, **how: tf.nn.embedding_lookup(table, [[3, 1]], **how),
  "int64": lambda table, **how: tf.nn.embedding_lookup(table, tf.constant([3], tf.int64), **how),
  "sparse": lambda table, **how: tf.nn.embedding_lookup_sparse(
    table, tf.SparseTensor(*SPARSE), None, combiner="sum", **how),
  "safe": lambda table, **how: tf.nn.safe_embedding_lookup_sparse(
    list(table), tf.SparseTensor(*SPARSE), combiner="sum", **how)}


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.mark.parametrize(
  "partitioner, shape, shards",
  [
    (partitioning.fixed_size_partitioner(2), [9, 20], [2, 1]),
    (
      partitioning.fixed_size_partitioner(50, axis=1),
      [9, 20],
      [1, 20],
    ),  # no more than there are columns
    (partitioning.fixed_size_partitioner(3), [0, 20], [1, 1]),
    (
      partitioning.min_max_variable_partitioner(5, min_slice_size=400),
      [9, 20],
      [2, 1],
    ),  # 720 bytes
    (partitioning.min_max_variable_partitioner(5, min_slice_size=100), [9, 20], [5, 1]),
    (
      partitioning.variable_axis_size_partitioner(200),
      [9, 20],
      [5, 1],
    ),  # two rows of 80 bytes in each
    (partitioning.variable_axis_size_partitioner(200, max_shards=3), [9, 20], [3, 1]),
    (partitioning.variable_axis_size_partitioner(1), [9, 20], [9, 1]),
    (partitioning.variable_axis_size_partitioner(200), [0, 20], [1, 1]),
    (partitioning.bytes_partitioner(720), [9, 20], [1, 1]),  # just not larger
    (partitioning.bytes_partitioner(719), [9, 20], [2, 1]),
    (partitioning.bytes_partitioner(200), [9, 20], [5, 1]),
    (partitioning.bytes_partitioner(719, min_shards=4), [9, 20], [4, 1]),
    (partitioning.bytes_partitioner(719, min_shards=40), [9, 20], [9, 1]),
    (partitioning.bytes_partitioner(720, min_shards=4), [9, 20], [1, 1]),
    (partitioning.bytes_partitioner(8), [9], [5]),
  ],
)
def test_shards_by_shape(partitioner, shape, shards):
  assert partitioner(shape=tf.TensorShape(shape), dtype=tf.float32) == shards


@pytest.mark.parametrize(
  "make, text",
  [
    (
      lambda: partitioning.fixed_size_partitioner(0),
      "num_shards must be an integer of at least 1, got 0",
    ),
    (
      lambda: partitioning.fixed_size_partitioner(2.5),
      "num_shards must be an integer of at least 1, got 2.5",
    ),
    (
      lambda: partitioning.fixed_size_partitioner(2, axis=-1),
      "axis must be the number of an axis, .* got -1",
    ),
    (lambda: partitioning.min_max_variable_partitioner(0), "max_partitions must be .* got 0"),
    (
      lambda: partitioning.min_max_variable_partitioner(2, min_slice_size=0),
      "min_slice_size must be .* got 0",
    ),
    (lambda: partitioning.variable_axis_size_partitioner(0), "max_shard_bytes must be .* got 0"),
    (
      lambda: partitioning.variable_axis_size_partitioner(9, max_shards=0),
      "max_shards must be .* got 0",
    ),
    (lambda: partitioning.bytes_partitioner(0), "max_shard_bytes must be .* got 0"),
    (lambda: partitioning.bytes_partitioner(5, 0), "min_shards must be .* got 0"),
  ],
)
def test_arguments_are_checked_first(make, text):
  with pytest.raises(ValueError, match=text):
    make()


@pytest.mark.parametrize(
  "make",
  [
    partitioning.fixed_size_partitioner,
    partitioning.min_max_variable_partitioner,
    partitioning.variable_axis_size_partitioner,
  ],
)
def test_a_variable_without_the_axis_is_named(make):
  with pytest.raises(ValueError, match=r"divides along axis 1, and the variable's shape is "
                     r"\(5,\)"):
    tf.get_variable("bias", [5], partitioner=make(2, axis=1))
  with pytest.raises(ValueError, match="fully known shape only, got"):
    make(2)(shape=tf.TensorShape([None, 2]), dtype=tf.float32)


@KINDS
def test_large_trainable_variables_are_partitioned_and_others_left_alone(use_resource):
  start = np.arange(24, dtype=np.float32).reshape(6, 4)
  with tf.variable_scope("own", use_resource=use_resource), partitioning.partition_large(48, 3):
    large = tf.get_variable("large", [6, 4], initializer=tf.ones_initializer())
    values = [tf.get_variable("array", initializer=start),
              tf.get_variable("tensor", initializer=tf.constant(start)),
              tf.get_variable("list", initializer=start.tolist())]
    tf.get_variable("small", [3, 4])
    tf.get_variable("scalar", [])
    tf.get_variable("average", [6, 4], trainable=False)
    tf.get_variable("given", [6, 4], partitioner=tf.fixed_size_partitioner(2))
    tf.get_variable("open", initializer=tf.placeholder(tf.float32, [None]), validate_shape=False)
    with tf.variable_scope("inner"):
      tf.get_variable("deep", [13])
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
      again = tf.get_variable("large", [6, 4])
  after = tf.get_variable("after", [6, 4])
  found = {}
  for variable in tf.global_variables():
    name, _, part = variable.op.name.partition("/part_")
    found.setdefault(name, []).append(part)
  three = ["0", "1", "2"]
  assert found == {
    "own/large": three, "own/array": three, "own/tensor": three, "own/list": three,
    "own/small": [""], "own/scalar": [""], "own/average": [""], "own/given": ["0", "1"],
    "own/open": [""], "own/inner/deep": three, "after": [""]}
  assert [one is other for one, other in zip(large, again)] == [True] * 3
  assert after.shape.as_list() == [6, 4]
  names = [each for each in tf.global_variables() if each.op.name != "own/open"]
  with tf.Session() as session:
    session.run(tf.variables_initializer(names))
    assert (session.run(tf.matmul(large, tf.ones([4, 1]))) == 4).all()  # as a tensor it is whole
    for value in session.run([each.as_tensor() for each in values]):
      assert (value == start).all()


@pytest.mark.slow
@KINDS
def test_shards_are_spread_by_bytes(use_resource):
  setter = device_setter.replica_device_setter(3, ps_strategy="greedy")
  with tf.device(setter), tf.variable_scope("own", use_resource=use_resource), \
      partitioning.partition_large(400, 3):
    tf.get_variable("first", [90])  # 360 bytes
    tf.get_variable("table", [1000, 8])  # 32,000 bytes: rows of 32 bytes, 12 in a shard
  rows = load_table.make_load_table()
  assert sum(row.bytes for row in rows) == 32360 and [row.shards for row in rows] == [27, 28, 29]
  assert max(row.bytes for row in rows) - min(row.bytes for row in rows) <= 400


@KINDS
@pytest.mark.parametrize("shards", [1, 2, 5])
def test_a_checkpoint_is_restored_into_any_number_of_shards(tmp_path, use_resource, shards):
  def build(count):
    with tf.variable_scope("own", use_resource=use_resource):
      table = tf.get_variable("table", [7, 3], initializer=tf.random_normal_initializer(),
                              partitioner=partitioning.fixed_size_partitioner(count))
    tf.train.MomentumOptimizer(0.1, 0.9).minimize(tf.reduce_sum(tf.square(table)))
    return table.as_tensor()

  values = []
  for count, act in ((3, tf.train.Saver.save), (shards, tf.train.Saver.restore)):
    with tf.Graph().as_default(), tf.Session() as session:
      table = build(count)
      session.run(tf.global_variables_initializer())
      act(tf.train.Saver(), session, str(tmp_path / "model.ckpt"))
      values.append(session.run(table))
  assert (values[0] == values[1]).all()


@KINDS
@pytest.mark.parametrize("name", list(LOOKUPS))
def test_mod_is_noticed_and_div_is_not(use_resource, name):
  table = tf.get_variable("table", [7, 2], partitioner=tf.fixed_size_partitioner(2),
                          use_resource=use_resource)
  tf.gradients(LOOKUPS[name](table, partition_strategy="div"), list(table))
  tf.gradients(embedding.embedding_lookup_sparse(table, [[1, 3]]), list(table))
  tf.matmul(tf.ones([1, 7]), table)
  partitioning.refuse_mod_lookups(table)
  LOOKUPS[name](table, partition_strategy="mod")
  with pytest.raises(ValueError, match="looks up the partitioned variable table by the partition_st"
                     "rategy \"mod\", TensorFlow's default, which reads other rows"):
    partitioning.refuse_mod_lookups(table)


def test_a_scope_that_partitions_refuses_it_at_its_end():
  def build(**how):
    with partitioning.partition_large(16):
      table = tf.get_variable("table%d" % len(how), [7, 2])
      tf.nn.embedding_lookup(table, [1], **how)

  build(partition_strategy="div")
  with pytest.raises(ValueError, match="partitioned variable table0 by the partition_strategy"):
    build()
  with partitioning.partition_large(1000):  # whole: there is no strategy
    tf.nn.embedding_lookup(tf.get_variable("whole", [7, 2]), [1])


@KINDS
@pytest.mark.parametrize("parts, found", [
  (None, [(0, 7)]), (1, [(0, 7)]), (3, [(0, 3), (3, 2), (5, 2)]), (9, [(i, 1) for i in range(7)])])
def test_parts_and_their_rows(use_resource, parts, found):
  table = tf.get_variable("table", [7, 2], use_resource=use_resource,
                          partitioner=parts and tf.fixed_size_partitioner(parts))
  named = partitioning.parts_of_table(table)
  assert [each[1:] for each in named] == found
  assert [each.variable.op.name for each in named] == (
    ["table/part_%d" % i for i in range(len(found))] if parts else ["table"])


def test_columns_are_refused():
  table = tf.get_variable("table", [7, 4], partitioner=tf.fixed_size_partitioner(2, axis=1))
  with pytest.raises(ValueError, match=r"the table table of shape \(7, 4\) is partitioned along "
                     r"another axis than 0: its part table/part_0 has the shape \[7, 2\]"):
    partitioning.parts_of_table(table)


def test_what_is_no_table_is_refused():
  table = tf.get_variable("table", [7, 4])
  for wrong in ([table, table], tf.zeros([7, 4]), 5):
    with pytest.raises(TypeError, match="a table must be a variable, or the partitioned variable"):
      partitioning.parts_of_table(wrong)
  for name, shape in (("scalar", []), ("open", None)):
    with pytest.raises(ValueError, match="table %s:0 must have rows and a fully known" % name):
      partitioning.parts_of_table(tf.get_variable(
        name, initializer=tf.placeholder_with_default(1., shape), validate_shape=False))
