from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster.description import Cluster
from tf1ps.placement import load_table
from tf1ps.program.contract import Program
from tf1ps.session import signature
from tf1ps.training import build as build_lib
from tf1ps.training import options as options_lib
from tf1ps.transfer import embedding

JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}}


def input_fn(mode, shard):
  data = shard.dataset(tf.data.Dataset.from_tensor_slices(np.arange(12).reshape(6, 2)))
  return tf.data.make_one_shot_iterator(data.batch(shard.batch_size)).get_next(), None


def model_fn(features, labels, mode):
  table = tf.get_variable("table", [50, 4])
  bias = tf.get_variable("bias", [4])
  bags = embedding.embedding_lookup_sparse(table, features) + bias
  return tf1ps.ModelSpec(loss=tf.reduce_sum(tf.square(bags)))


def build(index=0, model=model_fn, **how):
  """Builds a worker's graph; returns its signature and its load table."""
  options = options_lib.Options(steps=1, batch_size=2, optimizer="lazy_adam", **how)
  cluster = Cluster(JOBS, "worker", index)
  with tf.Graph().as_default():
    build_lib.build_step(Program("program", None, input_fn, model), cluster,
                         options_lib.shard_of(options, index, 2), options)
    return (signature.signature(cluster.task, options_lib.shared_by_workers(options)),
            load_table.make_load_table())


@pytest.mark.slow
@pytest.mark.parametrize("how", [
  {}, {"sync_replicas": True}, {"replication": "in_graph"}, {"num_clones": 2},
  {"replication": "in_graph", "sync_replicas": True}])
def test_shards_and_their_slots_are_on_all_ps(how):
  rows, loads = build(partition_bytes=300, **how)
  shards = {name: task for name, _, _, task, _ in rows if name.startswith("table/")}
  assert {name for name in shards if name.count("/") == 1} == {
    "table/part_%d:0" % i for i in range(3)}  # 800 bytes, rows of 16
  for name, task in shards.items():
    assert shards["/".join(name.split("/")[:2]).replace(":0", "") + ":0"] == task
  assert len(shards) == 9 and sum(row.shards for row in loads) == 9
  assert all(row.shards for row in loads if "ps" in row.task) and "bias:0" in [r[0] for r in rows]


@pytest.mark.slow
def test_a_worker_with_another_partition_is_refused():
  mine, _ = build(1, partition_bytes=300)
  signature.compare(mine, build(0, partition_bytes=300)[0], "me", "chief")
  for other in ({}, {"partition_bytes": 400}):
    with pytest.raises(signature.GraphMismatchError, match=(
        "me was started with --replication=between_graph --nosync_replicas --partition_bytes=300, "
        "but the chief, chief, with --replication=between_graph --nosync_replicas")):
      signature.compare(mine, build(0, **other)[0], "me", "chief")


def test_a_program_that_looks_up_by_mod_is_refused():
  def by_mod(features, labels, mode):
    table = tf.get_variable("table", [50, 4])
    return tf1ps.ModelSpec(loss=tf.reduce_sum(tf.nn.embedding_lookup(table, features)))

  with pytest.raises(ValueError, match="table by the partition_strategy \"mod\""):
    build(model=by_mod, partition_bytes=300)
  build(model=by_mod)
