"""Programs with their own training op: what it does to the variables, and what refuses it."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster.description import Cluster
from tf1ps.pipeline import shard as shard_lib
from tf1ps.program.contract import ModelSpecError, Program
from tf1ps.training import build as build_lib
from tf1ps.training import execution, options

ALONE = Cluster({"local": {0: "localhost:0"}}, "local", 0)
OF_TWO = Cluster({"ps": {0: "a:1"}, "worker": {0: "c:1", 1: "d:1"}}, "worker", 1)


def input_fn(mode, shard):
  data = shard.dataset(tf.data.Dataset.from_tensor_slices(np.ones(8, np.float32))).batch(4)
  return tf.data.make_one_shot_iterator(data).get_next(), None


def two_optimizers(by_first=False, by_second=False, more=lambda op: op):
  """A model of (a + b - 1)^2 / 2: the slope of both variables is a + b - 1."""
  def model_fn(features, labels, mode):
    a, b = (tf.get_variable(name, [], initializer=tf.zeros_initializer()) for name in "ab")
    seen = tf.get_variable("seen", [], trainable=False, initializer=tf.zeros_initializer())
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, seen.assign_add(1.0))
    loss = tf.reduce_mean(tf.square(a + b - features)) / 2

    def step(rate, variable, counts):
      return tf.train.GradientDescentOptimizer(rate).minimize(
        loss, tf.train.get_global_step() if counts else None, [variable])

    op = tf.group(step(0.5, a, by_first), step(0.25, b, by_second))
    return tf1ps.ModelSpec(loss=loss, train_op=more(op))
  return model_fn


def build(model_fn, cluster=ALONE, **flags):
  made = options.Options(steps=1, **flags)
  shard = shard_lib.Shard(index=cluster.replica_index, count=cluster.num_replicas, batch_size=4)
  with tf.get_default_graph().as_default():
    return build_lib.build_step(Program("program", None, input_fn, model_fn), cluster, shard, made)


def run(fetches, names=("a", "b", "seen", "global_step"), feed=None):
  """Makes a run on a server; returns these variables' values afterwards."""
  server = tf.train.Server({"local": ["localhost:0"]})
  found = {v.op.name: v for v in tf.global_variables()}
  with tf.Session(server.target) as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer(),
                 tf.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)])
    session.run(fetches, feed)
    return session.run([found[name] for name in names])


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default():
    yield


@pytest.mark.parametrize("counts", [(), ("by_first",)])
def test_a_step_raises_the_global_step_once(counts):
  step = build(two_optimizers(**dict.fromkeys(counts, True)))
  assert run(step.train_op) == [0.5, 0.25, 1.0, 1]


def test_a_run_of_several_steps():
  fetches = execution.Fetches(build(two_optimizers()), 2)
  # The second slope is 0.75 - 1.
  assert run(fetches.fetch("op", 2), feed=fetches.feed(2)) == [0.625, 0.3125, 2.0, 2]


def test_an_update_that_reads_what_another_wrote():
  def model_fn(features, labels, mode):
    a, b = (tf.get_variable(name, [], initializer=tf.zeros_initializer()) for name in "ab")
    with tf.control_dependencies([a.assign(tf.reduce_mean(features))]):
      copied = b.assign(a.read_value() * 3)
    return tf1ps.ModelSpec(loss=tf.reduce_mean(a * features), train_op=copied)

  assert run(build(model_fn).train_op, ["a", "b", "global_step"]) == [1.0, 3.0, 1]


def test_its_gradients_have_an_age():
  step = build(two_optimizers(), OF_TWO)
  assert step.counted is not None and len(step.age_tables) == 1


@pytest.mark.parametrize("model_fn, expected", [
  (two_optimizers(True, True), r"raises the global step 2 times in a step \(Grad.*one optimizer"),
  (two_optimizers(more=lambda op: tf.group(op, tf.assign_add(tf.train.get_global_step(), 2))),
   "uses the global step in .* Leave the global step out of the train_op"),
  (two_optimizers(more=lambda op: tf.assign(tf.train.get_global_step(), 7)),
   r"uses the global step in .* \(Assign.*\), which may not raise it by 1")])
def test_a_global_step_that_rises_otherwise_is_refused(model_fn, expected):
  with pytest.raises(ModelSpecError, match=expected):
    build(model_fn)


def test_a_global_step_in_a_branch_is_refused():
  def in_branch(op):
    def with_step():
      with tf.control_dependencies([op]):
        return tf.identity(tf.assign_add(tf.train.get_global_step(), 1))

    return tf.cond(tf.random_uniform([]) < 0.5, with_step, tf.train.get_global_step().read_value)

  with pytest.raises(ModelSpecError, match="uses the global step in .*may not raise it by 1"):
    build(two_optimizers(more=in_branch))


@pytest.mark.parametrize("flags, named", [
  (dict(sync_replicas=True), "--sync_replicas"),
  (dict(replication="in_graph"), "--replication=in_graph"),
  (dict(replication="in_graph", sync_replicas=True), "--replication=in_graph"),
  (dict(replication="all_reduce"), "--replication=all_reduce"),
  (dict(num_clones=2), "--num_clones=2"),
  (dict(gradient_accumulation_steps=2), "--gradient_accumulation_steps=2"),
  (dict(clip_norm=1.0), "--clip_norm=1.0"), (dict(overlap="prefetch"), "--overlap=prefetch"),
  (dict(wire_dtype="float16"), "--wire_dtype=float16"),
  (dict(staleness_policy="drop:2"), "--staleness_policy=drop:2"),
  (dict(staleness_policy="damp"), "--staleness_policy=damp")])
def test_what_needs_the_gradients_refuses_it(flags, named):
  with pytest.raises(ModelSpecError) as error:
    build(two_optimizers(), Cluster(OF_TWO.jobs, "worker", 0), **flags)
  assert str(error.value) == (
    "model_fn returned a train_op, and %s makes the update itself, from the gradients of the loss. "
    "Return ModelSpec(optimizer=...) in its place, or leave out %s" % (named, named))
