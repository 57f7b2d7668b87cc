"""Was the split worth it? Three networks, each on one device and split over two.

Example B36. Section: parallel.
Mechanism: two dense layers with a device each; a dense layer with half of its columns on each
device; two recurrent layers with a device each. The program trains each network unsplit and split.
What to look for: the losses are equal, to 1e-6. A split that sends much and computes little is not
worth it: fully connected layers are an example. Layers that work at the same time, here the
recurrent ones, gain first, if their devices do not share cores. The two devices of this process
share them, so the gain differs from run to run.
Toolkit: tf1ps.replication.layers_on_devices, split_dense, unrolled_recurrent and compare_split
(docs/model_parallel.md).

    $ python examples/model_parallel.py
    A dense layer on each device: after 33 steps the loss is 0.0028..., and split 0.0028...
                ms per step  bytes per step between devices
    unsplit       ...                               0
    split         ...                          65,540
    the split takes ... times as long: it is ...worth it

    Half of a dense layer's columns on each device: ... loss is 0.009..., and split 0.009...
                ms per step  bytes per step between devices
    unsplit       ...                               0
    split         ...                          24,580
    the split takes ... times as long: it is ...worth it

    A recurrent layer on each device: after 33 steps the loss is 0.067..., and split 0.067...
                ms per step  bytes per step between devices
    unsplit       ...                               0
    split         ...                         655,364
    the split takes ... times as long: it is ...worth it

Those devices are logical devices of one process. With --hosts=HOST:PORT,HOST:PORT they are two
tasks, in two shells and in any order: --task_index=0 trains and ends by itself, and --task_index=1
lends its device until Ctrl-C.
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.compat import LSTMCell
from tf1ps.replication import (
  compare_split,
  crossings,
  layers_on_devices,
  split_dense,
  split_table,
  total_crossings,
  unrolled_recurrent,
)
from tf1ps.state import container_scope

TIMES, BATCH, DEPTH, UNITS = 10, 32, 64, 128
X = np.random.RandomState(0).rand(TIMES, BATCH, DEPTH)


def dense(name):
  """A fully connected layer, as a callable."""
  def build(inputs):
    with tf.variable_scope(name):
      weights = tf.get_variable("weights", [int(inputs.shape[1]), UNITS])
      return tf.tanh(tf.matmul(inputs, weights))

  return build


def two_layers(x, devices):
  """A dense layer on each device"""
  return layers_on_devices(x[0], [dense("first"), dense("second")], devices)


def two_halves(x, devices):
  """Half of a dense layer's columns on each device"""
  return split_dense(x[0], UNITS, devices, tf.tanh).outputs


def recurrent_layers(x, devices):
  """A recurrent layer on each device"""
  cells = [LSTMCell(UNITS, name) for name in ("first", "second")]
  return unrolled_recurrent(x, cells, devices).outputs


def initial_values(shape, dtype=tf.float32, partition_info=None):
  """Values that do not depend on how a variable is divided into parts."""
  whole, offset = list(shape), [0] * len(shape)
  if partition_info is not None:
    whole, offset = partition_info.full_shape, partition_info.var_offset
  values = np.random.RandomState(1).uniform(-0.1, 0.1, whole)
  part = tuple(slice(begin, begin + size) for begin, size in zip(offset, shape))
  return tf.constant(values[part], dtype)


def make_network(container, build, devices, target, config):
  """Returns (a callable that trains one step and returns the loss, the bytes that it sends).

  Unsplit and split networks have variables of the same names on the same task: so each lives in a
  container of its own.
  """
  with tf.Graph().as_default() as graph, container_scope(container):
    with tf.device(devices[0]), tf.variable_scope("", initializer=initial_values):
      x = tf.placeholder(tf.float32, X.shape)
      loss = tf.reduce_mean(tf.square(build(x, devices) - 0.5))
      step = tf.train.GradientDescentOptimizer(0.5).minimize(
        loss, colocate_gradients_with_ops=True)
    session = tf.Session(target, graph, config)
    session.run(tf.global_variables_initializer())
    sent = total_crossings(crossings([step], default_device=devices[0]))
  return lambda: session.run([loss, step], {x: X})[0], sent


def main():
  """Lends a device to task 0, or compares."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--hosts", default="", help="of two tasks; none: this process alone")
  parser.add_argument("--task_index", type=int, default=0)
  parser.add_argument("--steps", type=int, default=30)
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  target, config, devices = "", tf.ConfigProto(device_count={"CPU": 2}), ["/cpu:0", "/cpu:1"]
  if flags.hosts:
    server = tf1ps.Server({"worker": flags.hosts.split(",")}, "worker", flags.task_index)
    if flags.task_index:
      server.join()
    target, config = server.target, None
    devices = ["/job:worker/task:0", "/job:worker/task:1"]
  for build in (two_layers, two_halves, recurrent_layers):
    unsplit, _ = make_network("unsplit", build, devices[:1] * 2, target, config)
    split, sent = make_network("split", build, devices, target, config)
    times = compare_split(unsplit, split, flags.steps)
    print("%s: after %d steps the loss is %.6f, and split %.6f" % (
      build.__doc__, flags.steps + 3, unsplit(), split()))
    print(split_table(times, sent) + "\n", flush=True)


if __name__ == "__main__":
  main()
