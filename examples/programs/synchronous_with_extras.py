"""Synchronous training of a deeper network, with a decaying rate, clipping and moving averages.

Example E5.
Mechanism: the learning rate decays with the global step: it is 0.1, and half as large after every
100 steps. The global step grows by one with each update, which takes one gradient of each worker.
The optimizer clips the *mean* gradient to norm 5. Each update also updates moving averages of all
variables, on the ps. Evaluation uses the averages.
What to look for: both workers have the same rate at each step, since both are at the same step.
Clipping each worker's gradient before it is sent (`compute_gradients`, clip, `apply_gradients`)
gives other numbers than clipping the mean. TensorFlow's own optimizer can only clip each gradient.
Toolkit: tf1ps.SyncReplicasOptimizer, with its clip_norm (docs/replication.md#synchronous-updates).

    $ python examples/programs/synchronous_with_extras.py
    worker 0: the rate is 0.1000 at step 0
    worker 0: the rate is 0.0500 at step 100
    worker 0: the rate is 0.0250 at step 200
    accuracy ... with the last weights, ... with averaged ones
    averaged weights are as good, within 0.03: True
    the chief has written summaries of the steps [1, 101, 201]
    worker 1: the rate is 0.1000 at step 0
    worker 1: the rate is 0.0500 at step 100
    worker 1: the rate is 0.0250 at step 200

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/programs/synchronous_with_extras.py worker 0 /tmp/extras 127.0.0.1:2221 \
        127.0.0.1:2222 127.0.0.1:2223
    2$ python examples/programs/synchronous_with_extras.py worker 1 /tmp/extras 127.0.0.1:2221 \
        127.0.0.1:2222 127.0.0.1:2223
    3$ python examples/programs/synchronous_with_extras.py ps 0 /tmp/extras 127.0.0.1:2221 \
        127.0.0.1:2222 127.0.0.1:2223
"""

import os
import pathlib
import sys
import tempfile

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits


def network(images):
  """Three hidden layers: logits [batch, 10] of images [batch, 64]."""
  for index, units in enumerate([64, 48, 32, 10]):
    with tf.variable_scope("layer_%d" % index):
      weights = tf.get_variable("weights", [images.shape[1], units])
      biases = tf.get_variable("biases", [units], initializer=tf.zeros_initializer())
    images = tf.matmul(images, weights) + biases
    images = tf.nn.relu(images) if units != 10 else images
  return images


def accuracy(images, digits, averages=None):
  """The share of right answers, with the weights themselves or with their moving averages."""
  def averaged(getter, *args, **kwargs):
    variable = getter(*args, **kwargs)
    return variable if averages is None else averages.average(variable)

  with tf.variable_scope("", reuse=True, custom_getter=averaged):
    right = tf.equal(tf.argmax(network(images), 1), digits)
  return tf.reduce_mean(tf.cast(right, tf.float32))


def steps_in(folder):
  """The steps of the summaries in a folder's events files."""
  files = tf.gfile.Glob(os.path.join(folder, "events.out.tfevents.*"))
  return [event.step for file in files for event in tf.train.summary_iterator(file)
          if event.summary.value]


def main():
  """Serves as the ps, or trains as a worker."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(3)
    with tempfile.TemporaryDirectory() as folder:
      return run_together(main, *[[job, index, folder] + hosts for job, index in [
        ("worker", "0"), ("worker", "1"), ("ps", "0")]])
  job, index, folder, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4:]
  tf.disable_v2_behavior()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  server = tf1ps.Server(cluster, job, index)
  if job == "ps":
    server.join()
    return
  train, test = handwritten_digits.read_to_feed()

  with tf.device(tf1ps.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % index)):
    images, digits = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
    global_step = tf.train.get_or_create_global_step()
    loss = tf.losses.sparse_softmax_cross_entropy(digits, network(images))
    rate = tf.train.exponential_decay(0.1, global_step, 100, 0.5, staircase=True)
    averages = tf.train.ExponentialMovingAverage(0.95, global_step)
    optimizer = tf1ps.SyncReplicasOptimizer(
      tf.train.MomentumOptimizer(rate, 0.9), len(hosts) - 1, variable_averages=averages,
      variables_to_average=tf.trainable_variables(), clip_norm=5.0)
    train_op = optimizer.minimize(loss, global_step)
    scores = [accuracy(images, digits), accuracy(images, digits, averages)]
    summary = tf.summary.merge([tf.summary.scalar("loss", loss), tf.summary.scalar("rate", rate)])

  hook = optimizer.make_session_run_hook(is_chief=index == 0)
  order = np.random.RandomState(index)
  writer = tf.summary.FileWriter(folder) if index == 0 else None
  with tf1ps.MonitoredTrainingSession(server.target, index == 0, hooks=[hook]) as session:
    print("worker %d: the rate is %.4f at step 0" % (index, session.run(rate)), flush=True)
    for step in range(1, 202):
      rows = order.randint(len(train.labels), size=50)
      feed = {images: train.images[rows], digits: train.labels[rows]}
      session.run(train_op, feed)  # returns when the update has been made
      if step % 100 == 0:
        print("worker %d: the rate is %.4f at step %d" % (index, session.run(rate), step))
      if writer and step % 100 == 1:
        writer.add_summary(session.run(summary, feed), step)
    if index == 0:
      last, averaged = session.run(scores, {images: test.images, digits: test.labels})
  if index == 0:
    writer.close()
    print("accuracy %.3f with the last weights, %.3f with averaged ones" % (last, averaged))
    print("averaged weights are as good, within 0.03:", bool(averaged > last - 0.03))
    print("the chief has written summaries of the steps", steps_in(folder))


if __name__ == "__main__":
  main()
