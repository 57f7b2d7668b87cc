"""Towers: what is shared, what is named how, what lives where, and what is refused."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import device_setter
from tf1ps.replication import towers

SGD = tf.train.GradientDescentOptimizer(1.0)
LOCAL = ["/device:CPU:0", "/device:CPU:1"]


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def line(index):
  with tf.variable_scope("line"):
    return tf.square(tf.get_variable("w", initializer=3.0) * (index + 1), name="squared")


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_towers_share_variables_and_have_their_own_gradients(use_resource):
  with tf.variable_scope("", use_resource=use_resource):
    built = towers.build_towers(line, LOCAL, SGD)
  w, = tf.global_variables()
  assert [tower.grads_and_vars[0][1] for tower in built] == [w, w]
  assert [tower.loss.op.name for tower in built] == ["line/squared", "tower_1/line/squared"]
  assert [(tower.index, tower.device) for tower in built] == list(enumerate(LOCAL))
  config = tf.ConfigProto(device_count={"CPU": 2})
  with tf.Session(config=config) as session:
    session.run(tf.global_variables_initializer())
    assert session.run([tower.loss for tower in built]) == [9.0, 36.0]
    assert session.run([tower.grads_and_vars[0][0] for tower in built]) == [6.0, 24.0]


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("around", ["setter", "given", "string"])
def test_variables_live_on_the_ps_and_towers_on_their_devices(use_resource, around):
  def setter(worker):
    return device_setter.replica_device_setter(ps_tasks=2, worker_device=worker)

  devices = ["/job:worker/task:%d/device:CPU:%d" % (i, i) for i in (0, 1)]

  def two(index):
    for name in ("a", "b"):
      with tf.name_scope(name):
        last = tf.square(tf.get_variable(name, initializer=1.0) * 2.0)
    return tf.multiply(last, 1.0, name="loss")

  with tf.variable_scope("", use_resource=use_resource):
    if around == "setter":
      with tf.device(setter("/job:worker/task:0")):
        built = towers.build_towers(two, LOCAL, SGD)
    else:
      built = towers.build_towers(
        two, devices, SGD, "/job:ps/task:1" if around == "string" else setter("/job:worker/task:5"))
  assert [v.device for v in tf.global_variables()] == {
    "string": ["/job:ps/task:1"] * 2}.get(around, ["/job:ps/task:0", "/job:ps/task:1"])
  expected = devices if around != "setter" else ["/job:worker/task:0" + d for d in LOCAL]
  assert [tower.loss.device for tower in built] == expected
  # b's gradient; a is not used by the loss.
  assert [tower.grads_and_vars[0][0] for tower in built] == [None, None]
  assert [tower.grads_and_vars[1][0].device for tower in built] == expected


def test_a_tower_sees_only_its_own_losses_and_the_first_ones_stay():
  tf.add_to_collection(tf.GraphKeys.LOSSES, tf.constant(100.0, name="before"))

  def tower(index):
    w = tf.get_variable("w", initializer=1.0)
    tf.losses.add_loss(w * 10.0 ** index)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.no_op("update"))
    tf.summary.scalar("value", w)
    return tf.losses.get_total_loss(add_regularization_losses=False)

  built = towers.build_towers(tower, LOCAL, SGD)
  with tf.Session(config=tf.ConfigProto(device_count={"CPU": 2})) as session:
    session.run(tf.global_variables_initializer())
    assert session.run([tower.grads_and_vars[0][0] for tower in built]) == [1.0, 10.0]
  names = {key: [thing.name for thing in tf.get_collection(key)] for key in (
    tf.GraphKeys.LOSSES, tf.GraphKeys.UPDATE_OPS, tf.GraphKeys.SUMMARIES)}
  assert names == {"losses": ["before:0", "mul:0"], "update_ops": ["update"],
                   "summaries": ["value:0"]}
  assert [[op.name for op in tower.update_ops] for tower in built] == [["update"],
                                                                       ["tower_1/update"]]


def test_collections_are_as_before_after_an_error():
  tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.no_op("before"))
  with pytest.raises(KeyError), towers.own_collections(keep=False):
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.no_op("inside"))
    raise KeyError
  assert [op.name for op in tf.get_collection(tf.GraphKeys.UPDATE_OPS)] == ["before"]


def test_outer_scopes_stay():
  with tf.variable_scope("model"), tf.name_scope("train"):
    built = towers.build_towers(line, LOCAL, SGD)
  assert [v.op.name for v in tf.global_variables()] == ["model/line/w"]
  assert built[0].loss.op.name == "model/train/model/line/squared"


def test_a_loss_without_a_known_shape_is_taken_for_a_scalar():
  def tower(index):
    return tf.get_variable("w", initializer=1.0) * tf.placeholder(tf.float32)

  assert towers.build_towers(tower, LOCAL, SGD)[0].loss.shape.as_list() == []


def own_variable(index):
  return tf.Variable(1.0, name="w") * 1.0


@pytest.mark.parametrize("tower_fn, devices, said", [
  (own_variable, LOCAL, r"tower 1 made variables of its own.*\['tower_1/w:0'\]; make them by "),
  (lambda index: tf.get_variable("w", [2]) * 1.0, LOCAL, r"tower 0's is float32 with the shape"),
  (lambda index: tf.constant(1), LOCAL, r"a scalar of a floating type; tower 0's is int32"),
  (line, [], "at least one device, got none"),
  (line, "/device:CPU:0", "list of device strings, got the string '/device:CPU:0'"),
  (line, ["/job:worker/tsk:0"], "'/job:worker/tsk:0' is not a device string such as"),
  (line, [None], "None is not a device string such as"),
])
def test_arguments_are_checked(tower_fn, devices, said):
  with pytest.raises(ValueError, match=said):
    towers.build_towers(tower_fn, devices, SGD)


def test_a_second_tower_with_another_variable_is_refused():
  with pytest.raises(ValueError, match="v1 does not exist|tower 1 made"):
    towers.build_towers(lambda i: tf.get_variable("v%d" % i, initializer=1.0) * 1.0, LOCAL, SGD)
