"""Measures the cost of measuring gradients' ages: asynchronous training with and without it.

    python -m benchmarks.staleness [--blocks=40] [--steps=100]

One ps and two workers, processes of this machine, train a model of dense layers 784-100-10 with
batches of 32 from memory. There are two copies of the model on the ps: the steps of one copy also
count the age of their gradient there. Blocks of steps are interleaved, plain and measured in turn,
so that other load on the machine affects both copies equally. Both workers begin each block
together. For each copy the benchmark prints the median steps/s of both workers, the ratio to the
plain copy's steps/s (the median of the ratios of neighbouring blocks), and the loss after the same
number of minibatches; then it prints the ages.
"""
from __future__ import annotations

import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from absl import app, flags  # noqa: E402

from benchmarks import rows, workers  # noqa: E402
from tf1ps.launch import find_free_addresses  # noqa: E402
from tf1ps.replication import AgeTable, begin_gradient_age, gradient_age, read_ages  # noqa: E402

flags.DEFINE_integer("blocks", 40, "Blocks of each kind.")
flags.DEFINE_integer("steps", 100, "Steps of each worker in a block.")
flags.DEFINE_list("addresses", [], "For the processes that this one starts: of the tasks.")
flags.DEFINE_integer("task", -1, "For the processes that this one starts: 0 is the ps.")
flags.DEFINE_string("json", "", "A file for the rows.")
FLAGS = flags.FLAGS

KINDS = ("plain", "measured")
WORKERS, BATCH, RECORDS = 2, 32, 3200


def build(kind, features, labels, worker):
  """Builds a copy of the model; returns the step's fetches, the loss of all records, the table."""
  setter = tf.train.replica_device_setter(1, worker_device="/job:worker/task:%d" % worker)
  with tf.device(setter), tf.variable_scope(kind, use_resource=True):
    step = tf.get_variable("step", initializer=np.int64(0), trainable=False)
    ids = tf.random_uniform([BATCH], maxval=RECORDS, dtype=tf.int32)
    losses = []
    for x, y in ((tf.gather(features, ids), tf.gather(labels, ids)), (features, labels)):
      with tf.variable_scope("net", reuse=tf.AUTO_REUSE):
        w1, b1 = tf.get_variable("w1", [784, 100]), tf.get_variable("b1", [100])
        w2, b2 = tf.get_variable("w2", [100, 10]), tf.get_variable("b2", [10])
      logits = tf.matmul(tf.nn.relu(tf.matmul(x, w1) + b1), w2) + b2
      losses.append(tf.losses.sparse_softmax_cross_entropy(y, logits))
    train_op = tf.train.GradientDescentOptimizer(0.05).minimize(losses[0], step)
    fetches = [train_op, losses[0]]
    table = AgeTable(step, worker)
    if kind == "measured":
      fetches.append(table.count(gradient_age(step, begin_gradient_age(step), train_op)))
  return fetches, losses[1], table


def work(index):
  """Runs a worker, which does the blocks that its input names, and prints when each is done."""
  random = np.random.RandomState(0)
  features = random.normal(size=[RECORDS, 784]).astype(np.float32)
  labels = np.argmax(features.dot(random.normal(size=[784, 10])), axis=1)
  with tf.device("/job:worker/task:%d" % index):
    features, labels = tf.constant(features), tf.constant(labels)
  models = {kind: build(kind, features, labels, index) for kind in KINDS}
  init = tf.global_variables_initializer()
  server = tf.train.Server({"ps": FLAGS.addresses[:1], "worker": FLAGS.addresses[1:]}, "worker",
                           index)
  config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:%d" % index])
  with tf.Session(server.target, config=config) as session:
    session.run([table.reset for _, _, table in models.values()])
    for line in sys.stdin:
      what, _, kind = line.strip().partition(" ")
      if what == "initialise":
        session.run(init)
      elif what == "loss":
        print("%.4f" % session.run(models[kind][1]), flush=True)
        continue
      elif what == "ages":
        print(read_ages([session.run(models["measured"][2].read)]), flush=True)
        continue
      else:
        fetches = models[kind][0]
        for _ in range(int(what)):
          session.run(fetches)
      print("done", flush=True)


def compare(trainers, blocks, steps):
  """Returns the steps/s of each block, by kind."""
  rates = {kind: [] for kind in KINDS}
  for block in range(blocks + 1):
    # The kinds take turns, and each kind is first as often as the other.
    for kind in KINDS if block % 2 else reversed(KINDS):
      began = time.perf_counter()
      workers.ask(trainers, "%d %s" % (steps, kind))
      if block:  # the first block of each kind includes one-time work
        rates[kind].append(WORKERS * steps / (time.perf_counter() - began))
  return rates


def report(trainers, rates, steps):
  """Prints the comparison; returns its rows."""
  minibatches, found = WORKERS * steps * (len(rates["plain"]) + 1), []
  for kind in KINDS:
    ratio = statistics.median(mine / plain for mine, plain in zip(rates[kind], rates["plain"]))
    loss = float(workers.ask(trainers[:1], "loss " + kind)[0])
    print("%-8s %7.1f steps/s (%.3f)   loss %.4f after %d minibatches" % (
      kind, statistics.median(rates[kind]), ratio, loss, minibatches))
    found.append(rows.row("784-100-10", "loopback", kind, "", rates[kind], ratio, eval_loss=loss,
                          minibatches=minibatches))
  for index, ages in enumerate(workers.ask(trainers, "ages")):
    print("worker %d: %s" % (index, ages))
  return found


def main(argv):
  """Runs the comparison, or one of its processes."""
  del argv
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  if FLAGS.task == 0:
    tf.train.Server({"ps": FLAGS.addresses[:1], "worker": FLAGS.addresses[1:]}, "ps", 0).join()
  if FLAGS.task > 0:
    work(FLAGS.task - 1)
    return
  addresses = ",".join(find_free_addresses(1 + WORKERS))
  processes = []
  try:
    for task in range(1 + WORKERS):
      processes.append(workers.start(
        __file__, ["--addresses=" + addresses, "--task=%d" % task]))
    trainers = processes[1:]
    workers.ask(trainers[:1], "initialise")
    print("TensorFlow %s, %d blocks of %d steps for each of %d workers, medians" % (
      tf.__version__, FLAGS.blocks, FLAGS.steps, WORKERS))
    found = report(trainers, compare(trainers, FLAGS.blocks, FLAGS.steps), FLAGS.steps)
    if FLAGS.json:
      rows.write(FLAGS.json, found)
  finally:
    workers.end(processes)


if __name__ == "__main__":
  app.run(main)
