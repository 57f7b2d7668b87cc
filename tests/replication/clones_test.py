"""Clones on the two CPU devices of worker processes, beside a ps."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.replication import nodes as nodes_lib
from tests.replication import reference
from tf1ps.placement import device_setter
from tf1ps.replication import clones

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

WORKERS = nodes_lib.WORKERS


def setter(index):
  return device_setter.replica_device_setter(ps_tasks=1, worker_device=WORKERS[index])


@pytest.mark.slow
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


@pytest.mark.parametrize("size, count, lengths, weights", [
  (6, 3, [2, 2, 2], [None] * 3), (7, 2, [3, 4], [6 / 7, 8 / 7]),
  (2, 3, [1, 1, 1], [0.0, 1.5, 1.5]), (1, 2, [1, 1], [0.0, 2.0]), (5, 1, [5], [None])])
@pytest.mark.parametrize("is_known", [True, False])
def test_parts_of_any_batch_have_the_mean_of_the_batch(size, count, lengths, weights, is_known):
  with tf.Graph().as_default(), tf.Session() as session:
    values = np.arange(2.0 * size, dtype=np.float32).reshape(size, 2)
    batch = tf.constant(values) if is_known else tf.placeholder_with_default(values, [None, 2])
    sparse = tf.sparse.from_dense(values + 1)
    parts = clones.split_unevenly(
      {"x": batch, "sparse": sparse, "rate": tf.constant(3.0), "none": None},
      size if is_known else tf.shape(batch)[0], count)
    found = session.run([(part.tensors["x"], tf.sparse.to_dense(part.tensors["sparse"]) - 1,
                          part.tensors["rate"],
                          tf.constant(1.0) if part.weight is None else part.weight)
                         for part in parts])
    assert [len(part[0]) for part in found] == lengths
    expected = weights if is_known or None not in weights else [1.0] * count
    assert [part.weight is None for part in parts] == [
      one is None for one in weights] if is_known or count == 1 else True
    np.testing.assert_allclose([part[3] for part in found],
                               [1.0 if one is None else one for one in expected], rtol=1e-6)
    for x, dense, rate, _ in found:
      np.testing.assert_array_equal(x, dense)
      assert rate == 3.0
    total = sum(part[0].mean() * part[3] for part in found) / count
    np.testing.assert_allclose(total, values.mean(), rtol=1e-6)
    if is_known and size % count == 0:
      assert parts[0].tensors["x"].shape.as_list() == [size // count, 2]
