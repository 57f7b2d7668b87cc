"""Hints at better options: when they are given, and what they say."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster.description import Cluster
from tf1ps.placement import partitioning
from tf1ps.program.contract import Program
from tf1ps.training import build as build_lib
from tf1ps.training import hints, options
from tf1ps.transfer import LazyAdamOptimizer

JOBS = {"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}}


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default():
    yield


def tables(partition_bytes, *megabytes, num_ps=2):
  """Makes tables of rows of 1000 bytes; returns the hint."""
  with partitioning.partition_large(partition_bytes, num_ps):
    for index, size in enumerate(megabytes):
      tf.get_variable("table_%d" % index, [1000 * size, 250])
    tf.get_variable("small", [3])
  return hints.of_shards(partition_bytes, num_ps)


def test_many_shards_of_a_table():
  assert tables(1000000, 64) == (
    "--partition_bytes=1000000 makes 64 shards, 32 on each ps, and a large graph: give "
    "--partition_bytes=8388608, which makes 8")


def test_the_better_number_of_bytes_is_good():
  assert not tables(8388608, 64)
  assert len(tf.trainable_variables()) == 8 + 1


@pytest.mark.slow
def test_a_bound_that_other_bytes_would_not_better():
  assert not tables(1000000, 32)  # 16 on each ps
  with tf.Graph().as_default():
    assert not tables(900000, *[1] * 20, num_ps=10)  # each on all ps


def hint(optimizer="adam", rows=70000, looks_up=True, **flags):
  """Builds a worker's step; returns its hint."""
  def input_fn(mode, shard):
    data = shard.dataset(tf.data.Dataset.from_tensor_slices([1, 2]))
    return tf.data.make_one_shot_iterator(data.batch(2)).get_next(), None

  def model_fn(features, labels, mode):
    table = tf.get_variable("table", [rows, 64])  # 256 bytes each
    values = tf1ps.transfer.embedding_lookup(table, features) if looks_up else table
    own = None if isinstance(optimizer, str) else optimizer()
    return tf1ps.ModelSpec(loss=tf.reduce_sum(tf.square(values)), optimizer=own)

  made = options.Options(
    steps=1, optimizer=optimizer if isinstance(optimizer, str) else "adam", **flags)
  cluster = Cluster(JOBS, "worker", 0)
  return build_lib.build_step(Program("program", None, input_fn, model_fn), cluster,
                              options.shard_of(made, 0, 2), made).hint


SAYS = ("Adam updates every row of table (18 MB, and as much for each of its two slots) in each "
        "step: %s updates the rows of the batch alone")


@pytest.mark.parametrize("flags", [
  {}, dict(sync_replicas=True), dict(replication="in_graph"),
  dict(partition_bytes=6000000), dict(gradient_accumulation_steps=2)])
def test_adam_on_a_large_table(flags):
  assert hint(**flags) == SAYS % "--optimizer=lazy_adam"


def test_an_adam_of_the_program():
  assert hint(tf.train.AdamOptimizer) == SAYS % "tf1ps.transfer.LazyAdamOptimizer"


@pytest.mark.parametrize("how", [
  dict(optimizer="lazy_adam"), dict(optimizer=LazyAdamOptimizer), dict(optimizer="adagrad"),
  dict(rows=60000), dict(looks_up=False)])
def test_otherwise_there_is_no_hint(how):
  assert not hint(**how)
