"""The graphs of three_schemes.py: one network 64-128-10, trained in three ways.

By asynchronous updates, by synchronous ones, or with its hidden layer divided between the workers.
"""

import tensorflow.compat.v1 as tf

import tf1ps

PS, WORKERS = "/job:ps/task:0", ["/job:worker/task:0", "/job:worker/task:1"]
HIDDEN, RATE = 128, 0.2


def dense(name, inputs, units):
  """A fully connected layer."""
  weights = tf.get_variable(name + "_weights", [int(inputs.shape[1]), units])
  return tf.matmul(inputs, weights) + tf.get_variable(
    name + "_biases", [units], initializer=tf.zeros_initializer())


def split_hidden(images):
  """The hidden layer with half of its columns on each worker."""
  parts = []
  for index, worker in enumerate(WORKERS):
    with tf.device(worker):
      parts.append(tf.nn.relu(dense("hidden_%d" % index, images, HIDDEN // 2)))
  return tf.concat(parts, 1)


class Model:
  """The graph of one scheme, as one of the workers needs it."""

  def __init__(self, scheme, index, cluster):
    """Builds it: replicas share variables on the ps, the split network has them on the workers."""
    is_split = scheme == "vertical"
    place = WORKERS[0] if is_split else tf1ps.replica_device_setter(
      cluster=cluster, worker_device=WORKERS[index])
    optimizer = tf.train.GradientDescentOptimizer(RATE)
    if scheme == "synchronous":
      optimizer = tf1ps.SyncReplicasOptimizer(optimizer, 2)
    with tf.device(place):
      self.global_step = tf.train.get_or_create_global_step()
      reached = tf.get_variable("reached", [], tf.int32, tf.zeros_initializer(), trainable=False)
      self.images = tf.placeholder(tf.float32, [None, 64])
      self.digits = tf.placeholder(tf.int32, [None])
      hidden = (split_hidden(self.images) if is_split else
                tf.nn.relu(dense("hidden", self.images, HIDDEN)))
      logits = dense("logits", hidden, 10)
      loss = tf.losses.sparse_softmax_cross_entropy(self.digits, logits)
      self.train_op = optimizer.minimize(
        loss, self.global_step, colocate_gradients_with_ops=is_split)
      is_right = tf.equal(tf.argmax(logits, 1, output_type=tf.int32), self.digits)
      self.accuracy = tf.reduce_mean(tf.cast(is_right, tf.float32))
      self.reached, self.stop = reached, tf.assign(reached, 1)
      self.initialize = tf.global_variables_initializer()
    self.join = self.leave = tf.no_op()
    if scheme == "synchronous":
      self.join = optimizer.local_step_init_op if index else optimizer.chief_init_op
      self.leave = optimizer.leave_op
