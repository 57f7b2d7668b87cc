"""In-graph replication: towers on the workers of a cluster, run by one client, this process."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.replication import nodes as nodes_lib
from tests.replication import reference
from tf1ps.cluster import session as session_lib
from tf1ps.replication import client_graph, replica_threads

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

PS = "/job:ps/task:0"
WORKERS = nodes_lib.WORKERS


def scalar_loss(target):
  """(w - target)^2 / 2, with w = 0 at first."""
  w = tf.get_variable("w", initializer=0.0)
  return tf.square(w - target) / 2


def places(metadata, part):
  """The job and task of each device on which an operation with this in its name ran."""
  found = set()
  for device in metadata.step_stats.dev_stats:
    if device.device != "/host:CPU":  # 1.15 lists again what ran in the process of the master
      spec = tf.DeviceSpec.from_string(device.device)
      found.update("/job:%s/task:%d" % (spec.job, spec.task)
                   for node in device.node_stats if part in node.node_name)
  return found


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_two_towers_take_the_mean_of_their_gradients(nodes, use_resource):
  with nodes.graph(), tf.variable_scope("", use_resource=use_resource):
    model = client_graph.build_in_graph_synchronous(
      lambda index: scalar_loss([1.0, 3.0][index]), WORKERS[:2],
      tf.train.GradientDescentOptimizer(0.5), variables_device=PS)
    w, = tf.trainable_variables()
    assert [w.op.name, tf.train.get_global_step().op.name] == ["w", "global_step"]
    with nodes.session() as session:
      session.run(tf.global_variables_initializer())
      assert session.run(model.loss) == 2.5
      seen = []
      for _ in range(4):
        session.run(model.train_op)
        seen.append(session.run(w))
      assert seen == [1.0, 1.5, 1.75, 1.875]
      assert session.run(tf.train.get_global_step()) == 4


def test_each_part_runs_where_it_belongs(nodes):
  with nodes.graph(), tf.variable_scope("", use_resource=True):
    def tower(index):
      x = tf.fill([2, 2], tf.get_variable("w", initializer=1.0), name="filled")
      return tf.reduce_sum(tf.matmul(x, tf.random_uniform([2, 2])))

    model = client_graph.build_in_graph_synchronous(
      tower, WORKERS[1:], tf.train.MomentumOptimizer(0.5, 0.9), variables_device=PS)
    with nodes.session() as session:
      session.run(tf.global_variables_initializer())
      metadata = tf.RunMetadata()
      config = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
      session.run(model.train_op, options=config, run_metadata=metadata)
    assert places(metadata, "tower_1/random_uniform") == {WORKERS[2]}
    assert places(metadata, "tower_1/filled_grad/Sum") == {WORKERS[2]}
    assert places(metadata, "random_uniform") == {WORKERS[1], WORKERS[2]}
    assert places(metadata, "ApplyMomentum") == places(metadata, "reduce/") == {PS}
    assert {variable.device for variable in tf.global_variables()} == {PS}


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("optimizer", reference.OPTIMIZERS)
def test_fifty_steps_are_those_of_one_process_with_the_whole_batch(nodes, optimizer, count):
  with nodes.graph():
    placeholders = ids, targets = reference.inputs(count, None)
    model = client_graph.build_in_graph_synchronous(
      lambda i: reference.model(ids[i], targets[i]), WORKERS[:count],
      reference.make_optimizer(optimizer), variables_device=PS)
    assert isinstance(model.grads_and_vars[0][0], tf.IndexedSlices)
    with nodes.session(count=count) as session:
      session.run(tf.global_variables_initializer())
      for step in range(reference.STEPS):
        _, loss = session.run([model.train_op, model.loss], reference.feed(placeholders, step))
      trained = session.run({v.op.name: v for v in tf.trainable_variables()})
  reference.check(trained, optimizer)


def test_the_mean_is_clipped_and_not_the_gradients(nodes):
  with nodes.graph():
    # The gradients are -10 and 4, their mean -3; with a norm of 2: w = 0.5 * 2.
    model = client_graph.build_in_graph_synchronous(
      lambda index: scalar_loss([10.0, -4.0][index]), WORKERS[:2],
      tf.train.GradientDescentOptimizer(0.5), clip_norm=2.0, variables_device=PS)
    with nodes.session() as session:
      session.run(tf.global_variables_initializer())
      session.run(model.train_op)
      assert session.run(tf.trainable_variables()) == [1.0]


def test_averages_of_the_first_tower_are_updated_with_the_step(nodes):
  with nodes.graph():
    def tower(index):
      average = tf.get_variable("average", initializer=0.0, trainable=False)
      tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, average.assign_add(10.0 ** index).op)
      return scalar_loss(1.0)

    model = client_graph.build_in_graph_synchronous(
      tower, WORKERS[:2], tf.train.GradientDescentOptimizer(0.5), variables_device=PS)
    assert [len(tower.update_ops) for tower in model.towers] == [1, 1]
    with nodes.session() as session:
      session.run(tf.global_variables_initializer())
      session.run(model.train_op)
      average, = (v for v in tf.global_variables() if v.op.name == "average")
      assert session.run(average) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_two_threads_of_a_hundred_steps_make_two_hundred(nodes, use_resource):
  with nodes.graph() as graph, tf.variable_scope("", use_resource=use_resource):
    replicas = client_graph.build_in_graph_asynchronous(
      lambda index: scalar_loss(2.0), WORKERS[:2],
      lambda: tf.train.GradientDescentOptimizer(0.1, use_locking=True), variables_device=PS)
    assert replicas[0].optimizer is not replicas[1].optimizer
    with session_lib.BoundedSession(
        nodes.target(0), graph, nodes.config("/job:ps", *WORKERS)) as session:
      session.run(tf.global_variables_initializer())
      steps = {replica.tower.device: lambda op=replica.train_op: session.run(op)
               for replica in replicas}
      with replica_threads.ReplicaThreads(steps, num_steps=100) as threads:
        assert threads.wait(60.0)
      assert threads.steps == {WORKERS[0]: 100, WORKERS[1]: 100}
      w, = tf.trainable_variables()
      assert session.run(tf.train.get_global_step()) == 200
      assert abs(session.run(w) - 2.0) < 1e-4


@pytest.mark.parametrize("shared, slots", [
  (True, ["w/Momentum"]), (False, ["w/Momentum", "w/Momentum_1"])], ids=["shared", "own"])
def test_slots_are_as_many_as_optimizers(nodes, shared, slots):
  with nodes.graph():
    one = tf.train.MomentumOptimizer(1.0, 0.5)
    replicas = client_graph.build_in_graph_asynchronous(
      lambda index: scalar_loss(1.0), WORKERS[:2],
      lambda: one if shared else tf.train.MomentumOptimizer(1.0, 0.5), variables_device=PS)
    assert [v.op.name for v in tf.global_variables() if "Momentum" in v.op.name] == slots
    with nodes.session() as session:
      session.run(tf.global_variables_initializer())
      for replica in replicas:
        session.run(replica.train_op)
      # The first step goes to 1, where the gradient is 0; a shared momentum goes on by a half.
      assert session.run(tf.trainable_variables()) == [1.5 if shared else 1.0]
      assert session.run(tf.train.get_global_step()) == 2


def test_another_global_step_and_no_ps(nodes):
  with nodes.graph():
    with tf.device(WORKERS[1]):
      step = tf.get_variable("step", initializer=np.int64(5), trainable=False)
    model = client_graph.build_in_graph_synchronous(
      lambda index: scalar_loss(1.0), ["/job:worker/task:0/device:CPU:%d" % i for i in (0, 1)],
      tf.train.GradientDescentOptimizer(0.5), global_step=step, variables_device=WORKERS[1])
    with nodes.session() as session:
      session.run(tf.global_variables_initializer())
      session.run(model.train_op)
      assert session.run([step] + tf.trainable_variables()) == [6, 0.5]
    assert tf.train.get_global_step() is None
