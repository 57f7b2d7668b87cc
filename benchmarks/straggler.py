"""What a slow worker costs under each scheme: three workers, one of which sleeps in each step.

    python benchmarks/straggler.py [--rounds=3] [--minibatches=240] [--sleep=0.2]

Each run is a whole job of one ps and three workers on this machine, by tf1ps-local, of the program
that this file also is: ten weights of a linear model. The schemes take turns, and each job ends
after the same number of minibatches: a synchronous step has one of each worker that it waits for,
an asynchronous one has one. Printed for each: the median steps/s and its ratio to plain synchronous
training, minibatches/s, the median of the test loss, and what the workers of the last round say of
late gradients, staleness and lead.
"""
from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from absl import app, flags  # noqa: E402

from tf1ps import training  # noqa: E402

flags.DEFINE_integer("straggler", 2, "The worker that sleeps.")
flags.DEFINE_float("sleep", 0.2, "Seconds that it sleeps in each step.")
FLAGS = flags.FLAGS

# The flags, and the minibatches of a step.
SCHEMES = {
  "sync": (["--update=sync"], 3),
  "sync, one spare": (["--update=sync", "--replicas_to_aggregate=2"], 2),
  "async": (["--update=async"], 1),
  "async, max_lead=2": (["--update=async", "--max_lead=2"], 1),
}
LIMIT = 600.0  # seconds that a job may take
SAID = r"[\d]+ more examples came too late|staleness [\d.]+ \(\d+ at most\)|lead \d+ at most"


def input_fn(mode, shard):
  """Examples [batch, 10] of a linear model; the straggler's come slowly in training."""
  random = np.random.RandomState(3)
  features = random.normal(size=[3200, 10]).astype(np.float32)
  labels = features.dot(random.normal(size=[10])) + random.normal(scale=0.5, size=[3200])
  labels = labels.astype(np.float32)
  data = shard.dataset(tf.data.Dataset.from_tensor_slices((features, labels)), shuffle=3200)
  x, y = tf.data.make_one_shot_iterator(data.batch(shard.batch_size)).get_next()
  if mode == "train" and shard.index == FLAGS.straggler:
    with tf.control_dependencies([tf.py_func(_sleep, [], [], stateful=True)]):
      x = tf.identity(x)
  return x, y


def _sleep():
  threading.Event().wait(FLAGS.sleep)


def model_fn(features, labels, mode):
  """The mean squared error."""
  w = tf.get_variable("w", [10], initializer=tf.zeros_initializer())
  loss = tf.reduce_mean(tf.square(tf.tensordot(features, w, 1) - labels))
  return training.ModelSpec(loss=loss)


def run(arguments, steps):
  """Runs one job; returns its steps/s, its test loss, and what the workers say."""
  folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  done = subprocess.run(
    [sys.executable, os.path.join(folder, "bin", "tf1ps_local.py"), "--program=" + __file__,
     "--num_workers=3", "--steps=%d" % steps, "--optimizer=sgd", "--learning_rate=0.05",
     "--sleep=%g" % FLAGS.sleep, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    universal_newlines=True, timeout=LIMIT)
  if done.returncode:
    raise RuntimeError(done.stdout)
  reached, seconds = re.search(r"global step (\d+) in ([\d.]+) s", done.stdout).groups()
  loss = re.search(r"test loss ([\d.]+)", done.stdout).group(1)
  said = ["worker %s: %s" % (index, ", ".join(re.findall(SAID, line)) or "-") for index, line in
          sorted(re.findall(r"\] worker (\d)((?: \(chief\))?: \d+ steps.*)", done.stdout))]
  return int(reached) / float(seconds), float(loss), said


def main(argv):
  """Runs the schemes in turn and prints the comparison."""
  del argv
  found = {scheme: [] for scheme in SCHEMES}
  for _ in range(FLAGS.rounds):
    for scheme, (arguments, each) in SCHEMES.items():
      found[scheme].append(run(arguments, FLAGS.minibatches // each))
  print("TensorFlow %s, 3 workers, one sleeps %g s a step, %d rounds of %d minibatches" % (
    tf.__version__, FLAGS.sleep, FLAGS.rounds, FLAGS.minibatches))
  base = statistics.median(rate for rate, _, _ in found["sync"])
  for scheme, runs in found.items():
    rate = statistics.median(rate for rate, _, _ in runs)
    print("%-18s %6.1f steps/s (%5.2f)  %6.1f minibatches/s  test loss %.4f  %s" % (
      scheme, rate, rate / base, rate * SCHEMES[scheme][1],
      statistics.median(loss for _, loss, _ in runs), "; ".join(runs[-1][2])))


if __name__ == "__main__":
  # Of the comparison alone: as a program, this file has them from tf1ps-local.
  flags.DEFINE_integer("rounds", 3, "How often each scheme has its turn.")
  flags.DEFINE_integer("minibatches", 240, "Minibatches of a job, of all workers together.")
  app.run(main)
