"""Programs that are built under a device setter, and what lands where then."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.placement import device_setter


def ops_and_devices(setter, build, use_resource):
  """Returns the device of each op that `build` makes in a fresh graph, by the op's name."""
  with tf.Graph().as_default() as graph:
    with tf.variable_scope("", use_resource=use_resource), tf.device(setter()):
      build()
    return {op.name: op.device for op in graph.get_operations()}


def variable_devices(setter, build, use_resource):
  """Returns the devices of the ops that hold variables and tables, in the order of making."""
  with tf.Graph().as_default() as graph:
    with tf.variable_scope("", use_resource=use_resource), tf.device(setter()):
      build()
    return [op.device for op in graph.get_operations()
            if op.type in device_setter.DEFAULT_PS_OPS]


def five_variables_program():
  """Five variables over the ps, and inner devices that complete and override the setter's."""
  v = [tf.get_variable("v%d" % n, initializer=float(n)) for n in range(1, 6)]
  s = tf.add(v[0], v[1], name="s")
  with tf.device("/task:1"):
    tf.multiply(2.0, s, name="p1")
  with tf.device("/cpu:0"):
    tf.multiply(3.0, s, name="p2")


def training_program():
  """Layers, partitioned variables, an optimizer with slots, a global step."""
  x = tf.placeholder(tf.float32, [None, 9], name="x")
  w = tf.get_variable("w", [9, 20], partitioner=tf.fixed_size_partitioner(2))
  b = tf.get_variable("b", [20])
  loss = tf.reduce_mean(tf.matmul(x, tf.convert_to_tensor(w)) + b)
  step = tf.train.get_or_create_global_step()
  tf.train.AdamOptimizer().minimize(loss, global_step=step)


def nested_program():
  """Variables and other ops in every kind of inner scope."""
  inner = [None, "", "/cpu:0", "/gpu:1", "/task:1", "/job:ps", "/job:ps/task:1",
           "/job:ps/cpu:0", "/job:worker", "/job:worker/task:3", "/job:chief/task:0",
           lambda op: "/task:2", lambda op: op.device]
  for index, device in enumerate(inner):
    with tf.device(device):
      tf.get_variable("v%d" % index, [2])
      tf.constant(1.0, name="c%d" % index)
      with tf.device("/cpu:3"):
        tf.get_variable("w%d" % index, [2])
  with tf.colocate_with(tf.global_variables()[4]):
    tf.get_variable("near", [2])


def shared_program():
  """What stock puts on the ps besides variables, and what it does not."""
  tf.get_variable("v", [2])
  tf.raw_ops.MutableHashTableV2(key_dtype=tf.int64, value_dtype=tf.float32)
  tf.get_variable("w", [2])
  tf.raw_ops.ResourceConditionalAccumulator(dtype=tf.float32, shape=[2])
  tf.raw_ops.ConditionalAccumulator(dtype=tf.float32, shape=[2])
  tf.FIFOQueue(3, tf.float32)
  tf.get_variable("x", [2])


def local_program():
  """Local variables of every origin between two global ones."""
  tf.get_variable("g1", [2])
  tf.get_local_variable("l1", [2])
  tf.Variable(1.0, collections=[tf.GraphKeys.LOCAL_VARIABLES], name="l2")
  tf.Variable(1.0, collections=[], trainable=False, name="l3")
  tf.metrics.mean(tf.constant(1.0))
  tf.train.limit_epochs(tf.constant(1.0), num_epochs=2)
  tf.get_variable("g2", [2])
