"""What synchronous updates cost: ours against TensorFlow's own, and against asynchronous ones.

    python benchmarks/synchronous.py [--workers=2] [--rounds=5] [--steps=200] [--batch=32]

One ps and the workers are processes. Each worker's graph has the model once for each kind: two
dense layers, 784 - 100 - 10. In each round every kind makes its steps in turn, all workers at the
same time, so that whatever else the machine does meets all alike. "stock" is
`tf.train.SyncReplicasOptimizer` without free tokens, the strict way of using it.

Printed for each kind: the median over the rounds of a step's time in ms (one step: a minibatch of
each worker), its ratio to "stock", and the loss after the same number of fresh minibatches.
"""
from __future__ import annotations

import json
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

import tf1ps  # noqa: E402
from benchmarks import workers  # noqa: E402
from tf1ps.launch import ports  # noqa: E402

flags.DEFINE_integer("workers", 2, "Worker processes.")
flags.DEFINE_integer("rounds", 5, "How often each kind has its turn.")
flags.DEFINE_integer("steps", 200, "Steps of each worker in a turn.")
flags.DEFINE_integer("batch", 32, "Examples in a worker's minibatch.")
flags.DEFINE_string("worker", None, "For the processes that this starts.")
FLAGS = flags.FLAGS

KINDS = ("stock", "ours", "async")


def make_loss(kind, index, batch):
  """The loss of a fresh minibatch, on variables of this kind's."""
  random = np.random.RandomState(1)
  images = random.uniform(size=[4096, 784]).astype(np.float32)
  labels = images.dot(random.normal(size=[784, 10])).argmax(1)
  data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(4096, seed=index)
  x, y = tf.data.make_one_shot_iterator(data.repeat().batch(batch)).get_next()
  with tf.variable_scope(kind):
    for number, size in enumerate([100, 10]):
      w = tf.get_variable("w%d" % number, [x.shape[1], size],
                          initializer=tf.glorot_uniform_initializer(seed=number))
      x = tf.matmul(x, w) + tf.get_variable("b%d" % number, [size],
                                            initializer=tf.zeros_initializer())
      x = tf.nn.relu(x) if number == 0 else x
  return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=x))


def make_step(kind, loss, workers, index):
  """The training step of a kind, and its optimizer."""
  with tf.variable_scope(kind):
    step = tf.get_variable("step", [], tf.int64, tf.zeros_initializer(), trainable=False)
  optimizer = tf.train.GradientDescentOptimizer(0.05)
  if kind == "stock":
    optimizer = tf.train.SyncReplicasOptimizer(optimizer, workers, workers)
  elif kind == "ours":
    optimizer = tf1ps.SyncReplicasOptimizer(optimizer, workers, workers, replica_index=index)
  return optimizer.minimize(loss, step), optimizer


def work(cluster, index):
  """A worker: on each line of input, a kind and a number, it makes so many steps of that kind."""
  server = tf.train.Server(cluster, "worker", index)
  task = "/job:worker/task:%d" % index
  steps, losses, optimizers = {}, {}, {}
  with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=task)):
    for kind in KINDS:
      losses[kind] = make_loss(kind, index, FLAGS.batch)
      steps[kind], optimizers[kind] = make_step(kind, losses[kind], len(cluster["worker"]), index)
  config = tf.ConfigProto(device_filters=["/job:ps", task])
  session = tf.Session(server.target, config=config)
  coordinator = tf.train.Coordinator()
  if index == 0:
    session.run(tf.global_variables_initializer())
  print("ready", flush=True)
  sys.stdin.readline()
  for kind in ("stock", "ours"):
    optimizer = optimizers[kind]
    session.run(optimizer.chief_init_op if index == 0 else optimizer.local_step_init_op)
  if index == 0:
    session.run(optimizers["stock"].get_init_tokens_op(0))
    optimizers["stock"].get_chief_queue_runner().create_threads(
      session, coordinator, daemon=True, start=True)
  print("ready", flush=True)
  for line in sys.stdin:
    kind, count = line.split()
    seen = [session.run([losses[kind], steps[kind]])[0] for _ in range(int(count))]
    print("loss %.6f" % np.mean(seen[-100:]), flush=True)
  os._exit(0)  # TensorFlow's queue runner holds its session


def compare(trainers):
  """Milliseconds a step, and the last losses, by kind: a list with an entry a round."""
  seconds, losses = {kind: [] for kind in KINDS}, {}
  for number in range(FLAGS.rounds):
    for kind in KINDS[number % 3:] + KINDS[:number % 3]:
      began = time.perf_counter()
      answers = workers.ask(trainers, "%s %d" % (kind, FLAGS.steps))
      seconds[kind].append(1000 * (time.perf_counter() - began) / FLAGS.steps)
      losses[kind] = statistics.mean(float(answer.split()[1]) for answer in answers)
  return seconds, losses


def main(argv):
  """Starts the processes and prints the comparison."""
  del argv
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  if FLAGS.worker:
    role = json.loads(FLAGS.worker)
    if role["job"] == "ps":
      tf.train.Server(role["cluster"], "ps", 0).join()
    work(role["cluster"], role["index"])
  addresses = ["127.0.0.1:%d" % port for port in ports.choose_ports(1 + FLAGS.workers)]
  cluster = {"ps": addresses[:1], "worker": addresses[1:]}
  roles = [("ps", 0)] + [("worker", index) for index in range(FLAGS.workers)]
  processes = []
  try:
    for job, index in roles:
      role = json.dumps({"job": job, "index": index, "cluster": cluster})
      processes.append(workers.start(
        __file__, ["--batch=%d" % FLAGS.batch, "--worker=" + role]))
    trainers = processes[1:]
    workers.hear(trainers)  # the first one's variables are there
    workers.ask(trainers, "")
    for kind in KINDS:
      workers.ask(trainers, kind + " 20")
    seconds, losses = compare(trainers)
    print("TensorFlow %s, %d workers, batch %d, %d rounds of %d steps" % (
      tf.__version__, FLAGS.workers, FLAGS.batch, FLAGS.rounds, FLAGS.steps))
    base = statistics.median(seconds["stock"])
    for kind in KINDS:
      median = statistics.median(seconds[kind])
      print("%-6s %6.2f ms a step (%4.2f), %6.1f steps/s, loss %.4f" % (
        kind, median, median / base, 1000 / median, losses[kind]))
  finally:
    workers.end(processes)


if __name__ == "__main__":
  app.run(main)
