"""The graphs of less_bandwidth.py: four replicas of a network, divided among hosts.

The replicas of a host are clones: the host fetches the variables once and sends one gradient. All
replicas are in one graph and make one synchronous update.
"""

from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.replication import build_clones, reduce_gradients, split_batch
from tf1ps.transfer import fetch_variables, keep_constants_local, pack_gradients

REPLICAS, BATCH = 4, 32  # the batch of each


class Job(NamedTuple):
  """A row of the table."""
  name: str
  hosts: int = REPLICAS  # the replicas are divided among them
  ps: int = 1
  wire: str = "float32"
  parameters: tf.DType = tf.float32


def network(images, seed, dtype):
  """The network 64-100-100-10: it has parameters of a type, and computes in float32."""
  for layer, units in enumerate([100, 100, 10]):
    shape = [int(images.shape[1]), units]
    limit = np.sqrt(6.0 / sum(shape))
    first = tf.random.stateless_uniform(shape, [seed, layer], -limit, limit)
    weights = tf.get_variable("weights_%d" % layer, dtype=dtype, initializer=tf.cast(first, dtype))
    images = tf.matmul(tf.tanh(images) if layer else images, tf.cast(weights, tf.float32))
  return images


class Model:
  """A graph with all replicas and the one update from their gradients."""

  def __init__(self, job):
    self.seed = tf.placeholder_with_default(0, [])
    self.inputs, sent = [], []  # of each host
    optimizer = tf.train.MomentumOptimizer(0.05, 0.9)
    for host in range(job.hosts):
      worker = "/job:worker/task:%d" % host
      with tf.device(tf.train.replica_device_setter(job.ps, worker_device=worker)), \
          tf.variable_scope("", reuse=host > 0):
        images, digits = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
        parts = split_batch((images, digits), REPLICAS // job.hosts)
        # A host fetches the variables once and sends one gradient, the mean of its clones'.
        built = build_clones(lambda i, parts=parts: tf.losses.sparse_softmax_cross_entropy(
          parts[i][1], network(parts[i][0], self.seed, job.parameters)),
          ["/device:CPU:0"] * len(parts), optimizer)
      self.inputs.append((images, digits))
      sent.append(pack_gradients(built.grads_and_vars, 0, job.wire))
    with tf.device("/job:ps/task:0"):  # beside their variables, if these are elsewhere
      self.step = optimizer.apply_gradients(reduce_gradients(sent, beside_variables=True))
    with tf.device(worker), tf.variable_scope("", reuse=True):
      logits = network(images, self.seed, job.parameters)
      self.loss = tf.losses.sparse_softmax_cross_entropy(digits, logits)
      self.accuracy = tf.reduce_mean(tf.cast(tf.nn.in_top_k(logits, digits, 1), tf.float32))
    fetch_variables(0, job.wire)
    keep_constants_local()  # the optimizer's learning rate, on each ps
    self.weights, self.init = tf.trainable_variables(), tf.global_variables_initializer()

  def train(self, session, seed, data, steps):
    """Trains; the jobs of a seed begin alike and get the same batches."""
    session.run(self.init, {self.seed: seed})
    order = np.random.RandomState(seed)
    for _ in range(steps):
      rows = np.split(order.randint(len(data[1]), size=REPLICAS * BATCH), len(self.inputs))
      session.run(self.step, {tensor: data[i][own] for own, inputs in zip(rows, self.inputs)
                              for i, tensor in enumerate(inputs)})

  def test(self, session, data):
    """Returns the accuracy, in per cent, and the loss."""
    accuracy, loss = session.run([self.accuracy, self.loss], dict(zip(self.inputs[-1], data)))
    return 100 * accuracy, loss
