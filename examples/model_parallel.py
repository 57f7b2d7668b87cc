"""Was the split worth it? Four networks, each on one device and split over two.

Example B36. Section: parallel.
Mechanism: two dense layers with a device each; a dense layer with half of its columns on each
device; two partially connected layers, cut along the missing connections; two recurrent layers with
a device each. The program trains each network unsplit and split.
What to look for: the losses are equal, to 1e-6. A split that sends much and computes little is not
worth it: fully connected layers are an example. A unit of the partially connected layers sees one
half of the inputs only, so the cut between the halves goes through no connection. Its two layers
send less than the one dense layer by halves. Cut a network where its architecture has few
connections.
Layers that work at the same time, here the recurrent ones, gain first, if their devices do not
share cores. The two devices of this process share them, so the gain differs from run to run.
colocate_gradients_with_ops=True keeps the backward pass of a layer on its device. Without it,
TensorFlow computes all gradients on one device, and fetches the values of the others for it.
A recurrent layer at time t needs the layer before it at time t, and itself at t - 1. So while it is
at t, the layer before may be at t + 1 on its own device. The graph only leaves this order open.
Toolkit: bare TensorFlow; tf1ps.compat.LSTMCell; tf1ps.replication.compare_split and crossings
measure (docs/replication.md#one-model-over-several-devices).

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

    Half of two partially connected layers on each device: ... loss is 0.0..., and split 0.0...
                ms per step  bytes per step between devices
    unsplit       ...                               0
    split         ...                          20,484
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

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.compat import LSTMCell
from tf1ps.replication import (
  compare_split,
  crossings,
  split_table,
  total_crossings,
)
from tf1ps.state import container_scope

flags.DEFINE_list("hosts", None, "Of two tasks; none: this process alone.")
flags.DEFINE_integer("task_index", 0, "0: trains; 1: lends its device.")
flags.DEFINE_integer("steps", 30, "Of each network.")
FLAGS = flags.FLAGS

TIMES, BATCH, DEPTH, UNITS = 10, 32, 64, 128
X = np.random.RandomState(0).rand(TIMES, BATCH, DEPTH)


def two_layers(x, devices):
  """A dense layer on each device"""
  outputs = x[0]
  for name, device in zip(["first", "second"], devices):
    with tf.device(device):
      weights = tf.get_variable(name, [int(outputs.shape[1]), UNITS])
      outputs = tf.tanh(tf.matmul(outputs, weights))
  return outputs


def two_halves(x, devices):
  """Half of a dense layer's columns on each device"""
  inputs, parts = x[0], []
  for index, device in enumerate(devices):
    mine = slice(index * UNITS // 2, (index + 1) * UNITS // 2)
    with tf.device(device):
      weights = tf.get_variable(
        "weights_%d" % index, initializer=initial_values([DEPTH, UNITS])[:, mine])
      biases = tf.get_variable("biases_%d" % index, [UNITS // 2],
                               initializer=tf.zeros_initializer())
      parts.append(tf.tanh(tf.matmul(inputs, weights) + biases))
  return tf.concat(parts, 1)  # on the device around it


def two_islands(x, devices):
  """Half of two partially connected layers on each device"""
  parts = []
  for index, (inputs, device) in enumerate(zip(tf.split(x[0], 2, axis=1), devices)):
    with tf.device(device):
      outputs = inputs
      for layer in ("first", "second"):
        weights = tf.get_variable("%s_%d" % (layer, index), [int(outputs.shape[1]), UNITS // 2])
        outputs = tf.tanh(tf.matmul(outputs, weights))
      parts.append(outputs)
  return tf.concat(parts, 1)  # on the device around it


def recurrent_layers(x, devices):
  """A recurrent layer on each device"""
  return unrolled(x, [LSTMCell(UNITS, name) for name in ("first", "second")], devices)


def unrolled(x, cells, devices):
  """A piece of graph for each cell, on its device, at each time step."""
  states, depth = [], x.shape[2]
  for cell, device in zip(cells, devices):
    with tf.device(device):
      cell.build(int(depth))
      states.append(cell.zero_state(int(x.shape[1])))
    depth = cell.units
  outputs = []
  for step in tf.unstack(x):
    for layer, (cell, device) in enumerate(zip(cells, devices)):
      with tf.device(device):
        step, states[layer] = cell(step, states[layer])
    outputs.append(step)
  with tf.device(devices[-1]):
    return tf.stack(outputs)


def initial_values(shape, dtype=tf.float32, partition_info=None):
  """The same values in each network."""
  return tf.constant(np.random.RandomState(1).uniform(-0.1, 0.1, shape), dtype)


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


def main(_):
  """Lends a device to task 0, or compares."""
  tf.disable_v2_behavior()
  target, config, devices = "", tf.ConfigProto(device_count={"CPU": 2}), ["/cpu:0", "/cpu:1"]
  if FLAGS.hosts:
    server = tf1ps.Server({"worker": FLAGS.hosts}, "worker", FLAGS.task_index)
    if FLAGS.task_index:
      server.join()
    target, config = server.target, None
    devices = ["/job:worker/task:0", "/job:worker/task:1"]
  for build in (two_layers, two_halves, two_islands, recurrent_layers):
    unsplit, _ = make_network("unsplit", build, devices[:1] * 2, target, config)
    split, sent = make_network("split", build, devices, target, config)
    times = compare_split(unsplit, split, FLAGS.steps)
    print("%s: after %d steps the loss is %.6f, and split %.6f" % (
      build.__doc__, FLAGS.steps + 3, unsplit(), split()))
    print(split_table(times, sent) + "\n", flush=True)


if __name__ == "__main__":
  app.run(main)
