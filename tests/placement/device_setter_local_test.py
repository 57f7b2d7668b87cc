"""Tests of tf1ps/placement/device_setter.py with tf1ps/placement/local_variables.py."""

from __future__ import annotations

import functools
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests.placement.sample_programs import local_program, ops_and_devices, variable_devices
from tf1ps.placement.device_setter import replica_device_setter

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
WORKER = "/job:worker/task:1"


@KINDS
def test_local_variables_stay_on_the_worker(use_resource):
  ps0, ps1 = "/job:ps/task:0", "/job:ps/task:1"

  def devices(setter):
    setter = functools.partial(setter, ps_tasks=2, worker_device=WORKER)
    return variable_devices(setter, local_program, use_resource)

  # g1, l1, l2, l3, total and count of the mean, the counter of epochs, g2.
  assert devices(tf.train.replica_device_setter) == [ps0, ps1] * 4
  assert devices(replica_device_setter) == [ps0] + [WORKER] * 6 + [ps1]


@KINDS
def test_all_ops_of_local_variables_stay_on_the_worker(use_resource):
  setter = functools.partial(replica_device_setter, ps_tasks=1, worker_device=WORKER)
  devices = ops_and_devices(setter, local_program, use_resource)
  # What has no device of its own follows its variable by colocation.
  local = {device for name, device in devices.items() if not name.startswith("g")}
  assert local <= {WORKER, ""}


@KINDS
def test_inner_devices_complete_and_override_those_of_local_variables(use_resource):
  with tf.Graph().as_default():
    with tf.device(replica_device_setter(2, worker_device=WORKER, ps_device="/job:ps/gpu:0")):
      for inner, expected in [("/cpu:0", WORKER + "/device:CPU:0"),
                              ("/task:3", "/job:worker/task:3"),
                              ("/job:chief", "/job:chief/task:1"),
                              ("/job:ps/task:1", "/job:ps/task:1/device:GPU:0"),
                              ("/job:ps", "/job:ps/task:1/device:GPU:0")]:
        with tf.device(inner):
          # The strategy has been asked once before "/job:ps", for the line above it.
          variable = tf.Variable(1.0, collections=[], use_resource=use_resource)
        assert variable.device == expected


@KINDS
def test_each_setter_keeps_its_own_worker(use_resource):
  with tf.Graph().as_default():
    setters = [replica_device_setter(1, worker_device="/job:worker/task:%d" % n) for n in (0, 1)]
    for task, setter in enumerate(setters):
      with tf.device(setter):
        local = tf.get_local_variable("local%d" % task, [], use_resource=use_resource)
      assert local.device == "/job:worker/task:%d" % task
    assert tf.get_local_variable("last", [], use_resource=use_resource).device == WORKER


def first_is_local():
  return tf.get_local_variable("first", initializer=1.0).device


@KINDS
@pytest.mark.parametrize("program, expected", [
    (first_is_local, WORKER),
    (lambda: (tf.constant(1.0), first_is_local())[1], WORKER),
    (lambda: tf.get_variable("g", []).device, "/job:ps/task:0"),
])
@pytest.mark.parametrize("where", ["same graph", "another graph", "another thread"])
def test_holds_in_whichever_graph_it_is_used(where, program, expected, use_resource):
  devices = []

  def build(graph, make_setter):
    with graph.as_default(), tf.device(make_setter()):
      with tf.variable_scope("", use_resource=use_resource):
        devices.append(program())

  arguments = dict(ps_tasks=1, worker_device=WORKER)
  if where == "same graph":
    build(tf.Graph(), lambda: replica_device_setter(**arguments))
  else:
    with tf.Graph().as_default() as graph:
      setter = replica_device_setter(**arguments)
    if where == "another graph":
      build(tf.Graph(), lambda: setter)
    else:
      thread = threading.Thread(target=build, args=(graph, lambda: setter))
      thread.start()
      thread.join(60)
  assert devices == [expected]


def test_a_graph_in_which_it_was_used_keeps_local_variables_outside_of_its_scope_too():
  with tf.Graph().as_default():
    setter = replica_device_setter(1, worker_device=WORKER)
  with tf.Graph().as_default():
    with tf.device(setter):
      tf.constant(1.0)
    assert first_is_local() == WORKER


def test_a_function_of_the_callers_around_it_keeps_all_but_the_first():
  with tf.Graph().as_default():
    setter = replica_device_setter(1, worker_device=WORKER)
  with tf.Graph().as_default(), tf.device(lambda op: setter(op)):
    assert first_is_local() == "/job:ps/task:0"
    assert tf.get_local_variable("second", [2]).device == WORKER


def test_a_graph_where_it_was_not_used_is_not_touched():
  with tf.Graph().as_default():
    setter = replica_device_setter(1, worker_device=WORKER)
    with tf.Graph().as_default(), tf.device(setter):
      tf.constant(1.0)
    with tf.Graph().as_default() as other:
      assert first_is_local() == ""
      assert not [op.name for op in other.get_operations() if "anchor" in op.name]


def test_functions_in_its_scope_are_built_as_ever():
  with tf.Graph().as_default(), tf.device(replica_device_setter(1, worker_device="")):
    numbers = tf.data.Dataset.range(3).map(lambda n: n * n + tf.cast(1, tf.int64))
    following = tf.data.make_one_shot_iterator(numbers).get_next()
    with tf.Session() as session:
      assert [session.run(following) for _ in range(3)] == [1, 2, 5]
