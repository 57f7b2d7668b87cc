from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tf1ps.cluster.description import Cluster
from tf1ps.pipeline import shard as shard_lib
from tf1ps.program.contract import Program
from tf1ps.training import between_graph, optimizers, options

CLUSTER = Cluster({"ps": {0: "a:1", 1: "b:1"}, "worker": {0: "c:1", 1: "d:1"}}, "worker", 1)
ALONE = Cluster({"worker": {0: "c:1"}}, "worker", 0)
PS0, PS1, WORKER = "/job:ps/task:0", "/job:ps/task:1", "/job:worker/task:1"


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def input_fn(mode, shard):
  data = shard.dataset(tf.data.Dataset.from_tensor_slices(np.arange(12, dtype=np.float32)))
  x = tf.data.make_one_shot_iterator(data.batch(shard.batch_size)).get_next()
  return x, 2 * x


def model_fn(features, labels, mode):
  big = tf.get_variable("big", [100], initializer=tf.zeros_initializer())
  small = tf.get_variable("small", [], initializer=tf.zeros_initializer())
  average = tf.get_variable("average", [], trainable=False, initializer=tf.zeros_initializer())
  seen = tf.get_local_variable("seen", [], initializer=tf.zeros_initializer())
  tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.assign_add(1.0))
  tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, seen.assign_add(1.0))
  loss = tf.reduce_mean(tf.square(small * features - labels)) + tf.reduce_sum(big) * 0.0
  return tf1ps.ModelSpec(loss=tf.identity(loss, name="loss"))


def build(cluster, model=model_fn, inputs=input_fn, optimizer="sgd", container="", **flags):
  made = options.Options(optimizer=optimizer, learning_rate=0.5, **flags)
  shard = shard_lib.Shard(index=cluster.replica_index, count=cluster.num_replicas, batch_size=4)
  return between_graph.build_step(
    Program("program", None, inputs, model), cluster, shard, made, container)


def places():
  """{variable's name: (job and task, operation's type, container)}."""
  found = {}
  for variable in tf.global_variables() + tf.local_variables():
    spec = tf.DeviceSpec.from_string(variable.device)
    found[variable.op.name] = ("/job:%s/task:%d" % (spec.job, spec.task), variable.op.type,
                               variable.op.get_attr("container"))
  return found


def test_variables_are_on_the_ps_by_size_and_the_rest_on_the_worker():
  step = build(CLUSTER, optimizer="momentum", container="job7")
  handle = "VarHandleOp"
  assert places() == {
    "global_step": (PS0, handle, b"job7"),
    "big": (PS1, handle, b"job7"), "big/Momentum": (PS1, handle, b"job7"),
    "small": (PS0, handle, b"job7"), "small/Momentum": (PS0, handle, b"job7"),
    "average": (PS0, handle, b"job7"),
    "tf1ps/input_position/worker_0": (PS0, handle, b"job7"),
    "tf1ps/input_position/worker_1": (PS0, handle, b"job7"),
    "seen": (WORKER, handle, b"job7")}
  assert step.loss.device == WORKER


@pytest.mark.parametrize("flags", [
  {}, {"overlap": "prefetch"}, {"overlap": 2}, {"sync_replicas": True}, {"clip_norm": 1.0}],
  ids=str)
def test_the_batch_waits_for_nothing_of_the_ps(flags):
  """Then a worker's GPU takes it while the values of the variables are on their way."""
  build(CLUSTER, **flags)
  ahead = [op for op in tf.get_default_graph().get_operations() if op.type == "IteratorGetNext"]
  assert ahead
  waits_for = set()
  while ahead:
    op = ahead.pop()
    if op not in waits_for:
      waits_for.add(op)
      ahead += [each.op for each in op.inputs] + list(op.control_inputs)
  assert not [op.name for op in waits_for if "/job:ps" in op.device]


def test_ref_variables_of_a_program():
  def own(features, labels, mode):
    with tf.variable_scope(tf.get_variable_scope(), use_resource=False):
      return model_fn(features, labels, mode)

  build(CLUSTER, model=own)
  assert places() == {
    "global_step": (PS0, "VarHandleOp", b""), "big": (PS1, "VariableV2", b""),
    "small": (PS0, "VariableV2", b""), "average": (PS0, "VariableV2", b""),
    "tf1ps/input_position/worker_0": (PS0, "VarHandleOp", b""),
    "tf1ps/input_position/worker_1": (PS0, "VarHandleOp", b""),
    "seen": (WORKER, "VariableV2", b"")}


@pytest.mark.parametrize("policy, reads_early", [
  (None, True), ("drop:0", False), ("damp", False), ("drop:0,damp", False)])
def test_values_are_read_early_unless_their_age_changes_the_update(policy, reads_early):
  policies = {"staleness_policy": policy} if policy else {}
  assert build(CLUSTER, **policies).reads_early == reads_early


@pytest.mark.parametrize("policies", [{}, {"staleness_policy": "drop:0,damp"}])
def test_one_update(tmp_path, policies):
  def find(name):
    return [v for v in tf.global_variables() + tf.local_variables() if v.op.name == name][0]

  tf.disable_control_flow_v2()  # as the programs do
  step = build(Cluster({"local": {0: "localhost:0"}}, "local", 0), **policies)
  server = tf.train.Server({"local": ["localhost:0"]})
  with tf.Session(server.target) as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    size, loss, _ = session.run([step.examples, step.loss, step.train_op])
    # x is 0, 1, 2, 3 and y = 2 x: the loss is 4 * 14 / 4, its slope at 0 is -2 * 28 / 4 = -14.
    assert (size, loss) == (4, 14.0)
    assert session.run(find("small")) == 7.0
    assert session.run([find("average"), find("seen"), find("global_step")]) == [1.0, 1.0, 1]


def test_two_clients_one_after_the_other_go_on_from_each_other():
  """w from 0 with the loss (w - 2)^2 / 2 and the rate 0.5, five steps each."""
  def target(mode, shard):
    return tf.fill([1], 2.0), None

  def distance(features, labels, mode):
    w = tf.get_variable("w", initializer=0.0)
    return tf1ps.ModelSpec(loss=tf.reduce_mean(tf.square(w - features)) / 2)

  addresses = harness.addresses(3)
  jobs = {"ps": dict(enumerate(addresses[:1])), "worker": dict(enumerate(addresses[1:]))}
  servers = [tf.train.Server(jobs, job, index)
             for job, index in (("ps", 0), ("worker", 0), ("worker", 1))]
  seen = []
  for index in range(2):
    with tf.Graph().as_default():
      step = between_graph.build_step(
        Program("program", None, target, distance), Cluster(jobs, "worker", index),
        shard_lib.Shard(index=index, count=2, policy="none"),
        options.Options(optimizer="sgd", learning_rate=0.5))
      w, = tf.trainable_variables()
      with tf.Session(servers[1 + index].target) as session:
        if index == 0:
          session.run(tf.global_variables_initializer())
        for _ in range(5):
          session.run(step.train_op)
        seen.append(session.run(w))
  assert seen == [1.9375, 1.998046875]


def test_the_loss_is_a_summary_of_that_name():
  build(ALONE)  # whose graph has an operation "loss" already
  tags = [tf.get_static_value(one.op.inputs[0]) for one in tf.get_collection(
    tf.GraphKeys.SUMMARIES)]
  assert tags == [b"learning_rate", b"loss"]


def test_the_programs_own_optimizer_wins():
  def own(features, labels, mode):
    spec = model_fn(features, labels, mode)
    return spec._replace(optimizer=tf.train.MomentumOptimizer(0.1, 0.9))

  build(ALONE, model=own, optimizer="sgd")
  assert "small/Momentum" in places()


@pytest.mark.parametrize("kwargs", [
  {"sync_replicas": True}, {"staleness_policy": "drop:3"}, {"staleness_policy": "damp"},
  {"num_clones": 2}])
def test_a_checkpoint_does_not_know_how_updates_are_made(kwargs):
  names = []
  tf.disable_control_flow_v2()  # as the programs do
  for each in ({}, kwargs):
    with tf.Graph().as_default():
      build(CLUSTER, optimizer="adam", **each)
      names.append(sorted(variable.op.name for variable in tf.global_variables()))
  assert names[0] == names[1] and "beta1_power" in names[0]


def test_data_that_nobody_divided_are_refused():
  def undivided(mode, shard):
    return tf.zeros([4]), tf.zeros([4])

  with pytest.raises(shard_lib.ShardError, match="did not ask its shard for data"):
    build(CLUSTER, inputs=undivided)
  with tf.Graph().as_default():
    build(ALONE, inputs=undivided)  # one worker has all of the data


def test_a_model_without_a_loss_is_refused():
  with pytest.raises(ValueError, match="no loss in mode 'train'"):
    build(CLUSTER, model=lambda features, labels, mode: tf1ps.ModelSpec(predictions=features))


def test_updates_that_cannot_be_made_are_refused():
  def own(features, labels, mode):
    return model_fn(features, labels, mode)._replace(optimizer=tf.train.AdamOptimizer())

  with pytest.raises(ValueError, match="--sync_replicas=3, but there are 2 workers: give"):
    build(CLUSTER, sync_replicas=3)
  with tf.Graph().as_default(), pytest.raises(
      ValueError, match="--staleness_policy=damp has no effect: the program brings an optimizer"):
    build(CLUSTER, model=own, staleness_policy="damp")


@pytest.mark.parametrize("flags, rate", [
  (dict(), 0.001), (dict(learning_rate=0.5), 0.5), (dict(optimizer="sgd"), 0.01)])
def test_the_learning_rate_is_the_given_one_or_that_of_the_optimizer(flags, rate):
  assert optimizers.build_learning_rate(options.Options(**flags)) == rate
