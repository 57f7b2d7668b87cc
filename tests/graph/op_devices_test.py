from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.graph import op_devices

CPU = "/job:%s/replica:0/task:%d/device:CPU:0"


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def test_what_a_device_leaves_open_is_as_the_default():
  devices = op_devices.OpDevices("/job:worker/task:1")
  with tf.device("/job:ps"):
    on_ps = tf.constant(1.0)
  assert devices.of(tf.constant(1.0).op) == CPU % ("worker", 1)
  assert devices.of(on_ps.op) == CPU % ("ps", 1)
  with tf.device("/job:ps/task:0/device:CPU:1"):
    assert devices.of(tf.constant(1.0).op) == "/job:ps/replica:0/task:0/device:CPU:1"


@pytest.mark.parametrize("use_resource", [False, True])
def test_a_variable_takes_what_reads_and_changes_it(use_resource):
  with tf.device("/job:ps/task:2"):
    variable = tf.get_variable("v", [2], use_resource=use_resource)
  devices = op_devices.OpDevices("/job:worker/task:0")
  with tf.device("/job:worker/task:0"):
    if use_resource:
      change = tf.raw_ops.AssignAddVariableOp(resource=variable.handle, value=[1.0, 1.0])
      value = tf.raw_ops.ReadVariableOp(resource=variable.handle, dtype=tf.float32).op
      assert devices.of(value) == CPU % ("ps", 2)
    else:
      change = tf.raw_ops.AssignAdd(ref=variable._ref(), value=[1.0, 1.0]).op
      # A copy is no operation on the reference.
      assert devices.of(tf.negative(variable._ref()).op) == CPU % ("worker", 0)
  assert devices.of(change) == CPU % ("ps", 2)


@pytest.mark.parametrize("use_resource", [False, True])
def test_what_is_colocated_with_a_variables_value_is_with_it(use_resource):
  with tf.device("/job:ps/task:2"):
    variable = tf.get_variable("v", [2], use_resource=use_resource)
  with tf.device("/job:worker/task:0"):
    value = tf.convert_to_tensor(variable)
    with tf.colocate_with(value.op, ignore_existing=True):
      beside = tf.negative(value)
    alone = tf.negative(value)
  devices = op_devices.OpDevices("/job:worker/task:0")
  assert devices.of(beside.op) == devices.of(value.op) == CPU % ("ps", 2)
  assert devices.of(alone.op) == CPU % ("worker", 0)


def test_a_resource_without_a_device_decides_nothing():
  handle = tf.get_variable("v", [2], use_resource=True).handle
  with tf.device("/job:ps/task:2"):
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
  assert op_devices.OpDevices("/job:worker/task:0").of(value.op) == CPU % ("ps", 2)


def test_a_function_of_several_resources_runs_where_its_device_says():
  handles = []
  for task in range(2):
    with tf.device("/job:ps/task:%d" % task):
      handles.append(tf.get_variable("v%d" % task, [2], use_resource=True).handle)
  with tf.device("/job:worker/task:0"):
    both = tf.raw_ops.IdentityN(input=handles)[0].op
  assert op_devices.OpDevices("/job:worker/task:0").of(both) == CPU % ("worker", 0)


@pytest.mark.parametrize("device, task", [
  ("/job:ps/replica:0/task:3/device:CPU:0", "/job:ps/task:3"),
  ("/job:worker", "/job:worker/task:0"), (op_devices.LOCAL_CPU, "/job:localhost/task:0")])
def test_tasks_of_devices(device, task):
  assert op_devices.task_of_device(device) == task
