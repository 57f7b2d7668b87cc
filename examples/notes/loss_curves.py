"""Synchronous against asynchronous as loss curves: one falls steadily, the other jitters.

Example N10.
Mechanism: one problem, five workers, three ways to update: each gradient by itself, the mean of all
five, and the mean of the first four, so that one worker is a spare. Every worker is a client with a
graph and a session of its own. The network is 64-50-10 on the digits that come with the project. A
step pauses in place of a computation, and one step in ten pauses ten times as long.
The rate is that of one gradient. A synchronous update multiplies it by the number of its gradients,
so that equal numbers of examples move the weights equally far. After each step a worker notes the
time and the weights. The loss, taken every 320 examples, is that of all training digits, so no
curve jitters because of the choice of its batch.
- spread: how far the loss is from the mean of the five values around it (root mean square, without
  the first quarter)
- rises: the sum of all rises of the loss, which is 0 if the loss only falls

What to look for: at equal examples the synchronous loss falls steadily, and the asynchronous one
jitters: its gradients are four or more updates old, and at a high rate such a gradient points the
wrong way.
Google has found (Chen and others, "Revisiting Distributed Synchronous SGD", 2016) that synchronous
updates with spare workers reach an accuracy first. Here that holds at the rate 0.08, where the
asynchronous loss does not come down in time, and it is a draw at 0.05. It does not hold at 0.02:
old gradients do little harm there, and a worker that waits for nobody is first. Without slow steps
(--slow=0, rate 0.05) a spare gains little: 9.7 s against 11.6 s. All of these are single runs.
Toolkit: tf1ps.SyncReplicasOptimizer (docs/replication.md#synchronous-updates).

    $ python examples/notes/loss_curves.py --rates=0.05 --num_examples=6400
    rate 0.05      spread   rises  seconds to a loss of 0.2
    asynchronous   ...
    synchronous    ...
    one spare      ...
    rate 0.05: the asynchronous loss rises more than 5 times as much as the synchronous one: True

Measured with --pause_ms=200 on 2 cores, TensorFlow 2.21, while the machine did other work, too:

    rate 0.02      spread   rises  seconds to a loss of 0.2
    asynchronous    0.005   0.025  23.4
    synchronous     0.004   0.003  52.4
    one spare       0.003   0.000  41.5
    rate 0.05      spread   rises  seconds to a loss of 0.2
    asynchronous    0.077   1.115  18.1
    synchronous     0.005   0.018  27.7
    one spare       0.006   0.056  17.4
    rate 0.08      spread   rises  seconds to a loss of 0.2
    asynchronous    3.281  51.340  not reached
    synchronous     0.009   0.112  29.1
    one spare       0.009   0.114  20.1

docs/pictures/loss_curves.png shows the curves of the rate 0.05. To draw them again, install
matplotlib (`pip install matplotlib`), and give --rates=0.05, --pause_ms=200 and
--picture=docs/pictures/loss_curves.png.
"""

import contextlib
import multiprocessing.pool
import pathlib
import sys
import time
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses
from tf1ps.state import container_scope

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_list("rates", "0.02,0.05,0.08", "Learning rates, of one gradient.")
flags.DEFINE_integer("num_examples", 12800, "Of each training.")
flags.DEFINE_float("pause_ms", 30, "Of a step.")
flags.DEFINE_float("slow", 0.1, "The part of the steps that pause ten times as long.")
flags.DEFINE_float("target", 0.2, "The loss to reach.")
flags.DEFINE_string("picture", None, "A file for the curves of the last rate.")
FLAGS = flags.FLAGS

WORKERS, BATCH = 5, 32
EVERY = 320  # examples between two points of a curve
# The gradients of an update; 0: each gradient is an update.
SCHEMES = {"asynchronous": 0, "synchronous": WORKERS, "one spare": WORKERS - 1}


class Curve(NamedTuple):
  """The loss after equal numbers of examples."""
  examples: np.ndarray
  seconds: np.ndarray
  losses: np.ndarray


def compute(images, pause):
  """Takes the time of a computation."""
  time.sleep(float(pause))
  return images


def weights(name, shape):
  """A variable that begins with the same values in each scheme."""
  limit = np.sqrt(6.0 / sum(shape))
  return tf.get_variable(name, initializer=tf.random.stateless_uniform(
    shape, [0, shape[1]], -limit, limit))


class Worker:
  """A client of the servers."""

  def __init__(self, server, index, aggregate, rate):
    """Builds its graph and joins; worker 0 initialises."""
    task = "/job:worker/task:%d" % index
    self.index, self.per_update = index, BATCH * max(aggregate, 1)
    with tf.device(tf1ps.replica_device_setter(1, worker_device=task)):
      self.images, self.digits = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32)
      self.pause = tf.placeholder(tf.float32, [])
      step = tf.train.get_or_create_global_step()
      variables = [weights("hidden", [64, 50]), weights("logits", [50, 10])]
      read = [tf.identity(variable) for variable in variables]
      with tf.control_dependencies(read):  # the weights are as old as the computation is long
        images = tf.numpy_function(compute, [self.images, self.pause], tf.float32)
      hidden = tf.tanh(tf.matmul(tf.reshape(images, [-1, 64]), read[0]))
      loss = tf.losses.sparse_softmax_cross_entropy(self.digits, tf.matmul(hidden, read[1]))
      optimizer = tf.train.MomentumOptimizer(rate * max(aggregate, 1), 0.9, use_locking=True)
      join = self.leave = tf.no_op()
      if aggregate:
        optimizer = tf1ps.SyncReplicasOptimizer(optimizer, aggregate, WORKERS, replica_index=index)
      self.train_op = optimizer.minimize(loss, step)
      if aggregate:
        join, self.leave = optimizer.local_step_init_op, optimizer.leave_op
        join = join if index else optimizer.chief_init_op
      self.seen = [step] + variables
      config = tf.ConfigProto(device_filters=["/job:ps", task])
      self.session = tf.Session(server.target, config=config)
      if index == 0:
        self.session.run(tf.global_variables_initializer())
      self.session.run(join)

  def train(self, data):
    """Trains until the job has used its examples; returns (step, second, weights) of each step."""
    order, seen, step, begin = np.random.RandomState(self.index), [], 0, time.monotonic()
    with contextlib.suppress(tf.errors.OutOfRangeError):  # another worker has left at the end
      while step < FLAGS.num_examples // self.per_update:
        rows = order.randint(len(data.labels), size=BATCH)
        pause = FLAGS.pause_ms / 1000 * (10 if order.rand() < FLAGS.slow else 1)
        self.session.run(self.train_op, {
          self.images: data.images[rows], self.digits: data.labels[rows], self.pause: pause})
        step, *values = self.session.run(self.seen)
        seen.append((step, time.monotonic() - begin, values))
      self.session.run(self.leave)
    return seen


def loss_of(data, hidden, logits):
  """The mean cross entropy of a data set, by numpy."""
  outputs = np.tanh(data.images.dot(hidden)).dot(logits)
  outputs -= outputs.max(axis=1, keepdims=True)
  right = outputs[np.arange(len(outputs)), data.labels]
  return np.mean(np.log(np.exp(outputs).sum(axis=1)) - right)


def train(servers, scheme, rate, data):
  """Trains by one scheme; returns its `Curve`."""
  workers = []
  for index, server in enumerate(servers):
    container = "%s-%g" % (scheme.replace(" ", "-"), rate)
    with tf.Graph().as_default(), container_scope(container):
      workers.append(Worker(server, index, SCHEMES[scheme], rate))
  with multiprocessing.pool.ThreadPool(WORKERS) as threads:
    seen = threads.map(lambda worker: worker.train(data), workers, chunksize=1)
  for worker in workers:
    worker.session.close()
  seen = sorted((one for of_worker in seen for one in of_worker), key=lambda one: one[:2])
  examples = np.array([step for step, _, _ in seen]) * workers[0].per_update
  grid = np.arange(EVERY, examples[-1] + 1, EVERY)
  points = [seen[place] for place in np.searchsorted(examples, grid)]
  return Curve(grid, np.array([second for _, second, _ in points]),
               np.array([loss_of(data, *weights) for _, _, weights in points]))


def judge(losses):
  """Returns the spread and the rises of a curve."""
  from_mean = losses[2:-2] - np.convolve(losses, np.ones(5) / 5, "valid")
  spread = np.sqrt(np.mean(from_mean[len(losses) // 4:] ** 2))
  return spread, np.maximum(np.diff(losses), 0).sum()


def draw(path, curves, rate):
  """Draws the curves of one rate into a file."""
  import matplotlib
  matplotlib.use("Agg")
  from matplotlib import pyplot
  figure, axes = pyplot.subplots(figsize=(8, 4.5))
  for (scheme, curve), line in zip(curves.items(), ["-", "-", "--"]):
    axes.plot(curve.examples, curve.losses, line, label=scheme, linewidth=1.2)
  axes.set(yscale="log", xlabel="examples", ylabel="loss of all training digits",
           title="%d workers, rate %g" % (WORKERS, rate))
  axes.legend()
  figure.tight_layout()
  figure.savefig(path, dpi=100)


def main(_):
  """Starts the servers here, to need one shell only, and prints a table for each rate."""
  tf.disable_v2_behavior()
  data, _ = handwritten_digits.read_to_feed()
  ps, *workers = find_free_addresses(WORKERS + 1)
  config = tf.ConfigProto(inter_op_parallelism_threads=4 * WORKERS)  # for all of this process
  _, *servers = [tf.train.Server({"ps": [ps], "worker": workers}, job, index, config=config)
                 for job, index in [("ps", 0)] + [("worker", i) for i in range(WORKERS)]]
  for rate in map(float, FLAGS.rates):
    print("rate %-8g %7s %7s  seconds to a loss of %g" % (rate, "spread", "rises", FLAGS.target))
    curves, rises = {}, {}
    for scheme in SCHEMES:
      curves[scheme] = curve = train(servers, scheme, rate, data)
      spread, rises[scheme] = judge(curve.losses)
      reached = curve.seconds[curve.losses <= FLAGS.target]
      print("%-13s %7.3f %7.3f  %s" % (
        scheme, spread, rises[scheme], "%.1f" % reached[0] if len(reached) else "not reached"),
        flush=True)
    print("rate %g: the asynchronous loss rises more than 5 times as much as the synchronous one: "
          "%s" % (rate, rises["asynchronous"] > 5 * rises["synchronous"]))
    if FLAGS.picture:
      draw(FLAGS.picture, curves, rate)


if __name__ == "__main__":
  app.run(main)
