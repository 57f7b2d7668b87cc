from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import mod_lookups, partitioning
from tf1ps.transfer import embedding

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


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("name", list(LOOKUPS))
def test_mod_is_noticed_and_div_is_not(use_resource, name):
  table = tf.get_variable("table", [7, 2], partitioner=tf.fixed_size_partitioner(2),
                          use_resource=use_resource)
  tf.gradients(LOOKUPS[name](table, partition_strategy="div"), list(table))
  tf.gradients(embedding.embedding_lookup_sparse(table, [[1, 3]]), list(table))
  tf.matmul(tf.ones([1, 7]), table)
  mod_lookups.check(table)
  LOOKUPS[name](table, partition_strategy="mod")
  with pytest.raises(ValueError, match="looks up the partitioned variable table by the partition_st"
                     "rategy \"mod\", TensorFlow's default, which reads other rows"):
    mod_lookups.check(table)


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
