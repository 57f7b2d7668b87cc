"""Clones on the two CPU devices of worker processes, beside a ps."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.replication import nodes as nodes_lib
from tests.replication import reference
from tf1ps.placement import device_setter
from tf1ps.replication import clones

WORKERS = nodes_lib.WORKERS


def setter(index):
  return device_setter.replica_device_setter(ps_tasks=1, worker_device=WORKERS[index])


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("optimizer, reduction", [
  ("sgd", "mean"), ("sgd", "sum"), ("momentum", "mean"), ("adam", "sum")])
def test_a_worker_with_clones_trains_like_one_with_one_device(
    nodes, optimizer, reduction, use_resource):
  with nodes.graph(), tf.device(setter(1)), tf.variable_scope("", use_resource=use_resource):
    ids, targets = placeholders = reference.inputs(1, None)
    parts = clones.split_batch({"ids": ids[0], "targets": targets[0]}, 2)
    update = reference.make_optimizer(optimizer)
    built = clones.build_clones(
      lambda i: reference.model(**parts[i]), clones.local_devices(2), update, reduction)
    train_op = update.apply_gradients(built.grads_and_vars)
    assert [tower.loss.device for tower in built.towers] == [
      WORKERS[1] + "/device:CPU:0", WORKERS[1] + "/device:CPU:1"]
    # One gradient travels to the ps: it is reduced on the worker.
    assert built.grads_and_vars[1][0].device == built.loss.device == WORKERS[1]
    assert {variable.device for variable in tf.global_variables()} == {"/job:ps/task:0"}
    with nodes.session(1) as session:
      session.run(tf.global_variables_initializer())
      for step in range(reference.STEPS):
        _, loss = session.run([train_op, built.loss], reference.feed(placeholders, step))
      trained = session.run({v.op.name: v for v in tf.trainable_variables()})
  scale = 2.0 if reduction == "sum" else 1.0
  reference.check(trained, optimizer, scale)
  np.testing.assert_allclose(loss, reference.train(optimizer, scale)[1], atol=1e-5)


def test_two_workers_with_two_clones_each_update_the_same_variables(nodes):
  for index in (0, 1):
    with nodes.graph("shared"), tf.device(setter(index)):
      update = tf.train.GradientDescentOptimizer(1.0)
      built = clones.build_clones(
        lambda i: tf.get_variable("w", initializer=0.0) * [1.0, 3.0][i], clones.local_devices(2),
        update)
      train_op = update.apply_gradients(built.grads_and_vars)
      with nodes.session(index) as session:
        if index == 0:
          session.run(tf.global_variables_initializer())
        session.run(train_op)
        assert session.run(tf.trainable_variables()) == [[-2.0], [-4.0]][index]


def test_a_batch_that_cannot_be_divided_fails():
  with tf.Graph().as_default(), tf.Session() as session:
    batch = tf.placeholder(tf.float32, [None])
    first, second = clones.split_batch({"x": batch, "y": [batch * 2.0]}, 2)
    assert session.run([first["x"], second["y"][0]], {batch: range(4)})[1].tolist() == [4.0, 6.0]
    with pytest.raises(tf.errors.InvalidArgumentError):
      session.run(first["x"], {batch: range(5)})
    assert clones.split_batch(batch, 1) == [batch]


@pytest.mark.parametrize("kind, names", [
  ("CPU", ["/device:CPU:0", "/device:CPU:1"]), ("GPU", ["/device:GPU:0", "/device:GPU:1"])])
def test_the_names_of_local_devices(kind, names):
  assert clones.local_devices(2, kind) == names


def test_the_config_is_a_copy():
  base = tf.ConfigProto(inter_op_parallelism_threads=3)
  config = clones.with_cpu_devices(2, base)
  assert (config.device_count["CPU"], config.inter_op_parallelism_threads) == (2, 3)
  assert not base.device_count


@pytest.mark.parametrize("call, said", [
  (lambda: clones.local_devices(0), "at least one clone, got 0"),
  (lambda: clones.with_cpu_devices(0), "at least one CPU device, got 0"),
  (lambda: clones.split_batch([], 0), "count must be at least 1, got 0"),
  (lambda: clones.build_clones(None, ["/device:CPU:0"], None, "median"), "mean or sum, got"),
])
def test_arguments_are_checked(call, said):
  with pytest.raises(ValueError, match=said):
    call()
