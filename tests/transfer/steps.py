"""A training step on ps of their own processes, for the tests of what makes several of it."""
from __future__ import annotations

import contextlib
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness

WORKER = "/job:worker/task:0"
EXAMPLES = 110  # in batches of 10; what the step after these draws is the end of the data


class Step(NamedTuple):
  """A step, before any session."""
  train_op: tf.Operation
  loss: tf.Tensor
  size: tf.Tensor  # of the batch
  global_step: tf.Variable
  init: tf.Operation
  variables: list


@contextlib.contextmanager
def cluster(forks, num_ps):
  """Yields (jobs, target): stock ps as processes, and this process as the worker."""
  addresses = harness.addresses(num_ps + 1)
  jobs = {"ps": addresses[:num_ps], "worker": addresses[num_ps:]}
  servers = [forks.start("ps %d" % i, cluster_tasks.serve, jobs, "ps", i) for i in range(num_ps)]
  try:
    for server in servers:
      server.wait_for("up")
    worker = tf.train.Server(jobs, "worker", 0)
    yield jobs, worker.target
  finally:
    for server in servers:
      server.kill()


def build(jobs, is_ref=False, embedding=False, dropout=False):
  """Builds a step of Adam, in the default graph, on batches of 10, the last of 10 too."""
  random = np.random.RandomState(0)
  data = (random.rand(EXAMPLES, 6).astype(np.float32), random.randint(0, 4, EXAMPLES))
  with tf.device(tf.train.replica_device_setter(worker_device=WORKER, cluster=jobs)):
    with tf.device(WORKER):
      iterator = tf.data.make_initializable_iterator(
        tf.data.Dataset.from_tensor_slices(data).batch(10))
      x, y = iterator.get_next()
    with tf.variable_scope("", use_resource=not is_ref):
      global_step = tf.train.get_or_create_global_step()
      w = tf.get_variable("w", [6, 8], initializer=tf.constant_initializer(
        np.linspace(-1, 1, 48).reshape(6, 8)))
      b = tf.get_variable("b", [8], initializer=tf.zeros_initializer())
      u = tf.get_variable("u", [8, 4], initializer=tf.constant_initializer(
        np.linspace(1, -1, 32).reshape(8, 4)))
      hidden = tf.tanh(tf.matmul(x, w) + b)
      if embedding:
        table = tf.get_variable("table", [4, 8], initializer=tf.ones_initializer())
        hidden += tf.nn.embedding_lookup(table, y % 3)
      if dropout:
        hidden = tf.nn.dropout(hidden, rate=0.5, seed=7)
      loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        logits=tf.matmul(hidden, u), labels=y))
      train_op = tf.train.AdamOptimizer(0.05).minimize(loss, global_step)
    with tf.device(WORKER):
      size = tf.shape(x)[0]
  return Step(train_op, loss, size, global_step,
              tf.group(tf.global_variables_initializer(), iterator.initializer),
              tf.trainable_variables())


def classic(jobs, target, **kwargs):
  """The losses of single steps to the end of the data, and the variables then."""
  losses = []
  with tf.Graph().as_default():
    step = build(jobs, **kwargs)
    with tf.Session(target) as session:
      session.run(step.init)
      try:
        while True:
          losses.append(session.run([step.train_op, step.loss])[1])
      except tf.errors.OutOfRangeError:
        return losses, session.run(step.variables)
