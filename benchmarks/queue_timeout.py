"""Measures the cost of a queue that loses no element, compared with TensorFlow's own operations.

    python -m benchmarks.queue_timeout [--runs=1000] [--batches=32,256] [--floats=8]

One ps runs in a separate process; this process is a client of the ps's master. Runs are
interleaved: one enqueue and one dequeue of each kind in turn, so that other load on the machine
affects all kinds equally. For each batch size, the benchmark prints the median of each operation in
ms, and its ratio to TensorFlow's. Then it prints how long an element takes from the end of `put` in
one thread to a consumer that waits in `get` in another thread.
"""
from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import numpy as np  # noqa: E402
import tensorflow.compat.v1 as tf  # noqa: E402
from absl import app, flags  # noqa: E402

import tf1ps  # noqa: E402
from benchmarks import rows  # noqa: E402
from tf1ps.launch import find_free_addresses  # noqa: E402

flags.DEFINE_integer("runs", 1000, "How often each operation is run.")
flags.DEFINE_list("batches", ["32", "256"], "Elements in a batch.")
flags.DEFINE_integer("floats", 8, "Floats in an element.")
flags.DEFINE_string("json", "", "A file for the rows.")
FLAGS = flags.FLAGS

SERVE = ("import sys, tensorflow.compat.v1 as tf\n"
         "tf.train.Server({'ps': [sys.argv[1]]}, 'ps', 0).join()")


def make_calls(session, batch, floats):
  """Returns the operations to compare, by name: pairs of a put and a get of one batch."""
  values = np.ones([batch, floats], np.float32)
  queue = tf1ps.FIFOQueue(4 * batch, [tf.float32], [[floats]], shared_name="queue%d" % batch,
                          device="/job:ps/task:0")
  with tf.device("/job:ps/task:0"):
    stock = tf.queue.FIFOQueue(4 * batch, [tf.float32], [[floats]], shared_name="stock%d" % batch)
  vals, n = tf.placeholder(tf.float32, [None, floats]), tf.placeholder(tf.int32, [])
  enqueue, dequeue = stock.enqueue_many([vals]), stock.dequeue_many(n)
  try_put, try_take = queue.try_enqueue_many([vals]), queue.try_dequeue_many(n)
  return {
    "enqueue_many": (lambda: session().run(enqueue, {vals: values}),
                     lambda: session().run(dequeue, {n: batch})),
    "put": (lambda: queue.put(session(), values, many=True), lambda: queue.get(session(), batch)),
    "try_enqueue_many": (lambda: session().run(try_put, {vals: values}),
                         lambda: session().run(try_take, {n: batch})),
  }


def compare(calls, runs):
  """Returns the median seconds of each put and get, by name."""
  times = {name: ([], []) for name in calls}
  for round_number in range(runs + 10):
    for name, pair in calls.items():
      for call, kept in zip(pair, times[name]):
        began = time.perf_counter()
        call()
        if round_number >= 10:  # the first rounds include one-time work
          kept.append(time.perf_counter() - began)
  return {name: tuple(statistics.median(kept) for kept in pair) for name, pair in times.items()}


def arrivals(session, queue, count):
  """Returns the seconds, sorted, from the end of a put until a waiting consumer has the element."""
  taken, ready = [], threading.Semaphore(0)

  def consume():
    for _ in range(count):
      queue.get(session, timeout=60)
      taken.append(time.perf_counter())
      ready.release()

  consumer = threading.Thread(target=consume)
  consumer.start()
  seconds = []
  for number in range(count):
    # The consumer is waiting, each time at another point of its pause.
    time.sleep(0.02 + 0.0007 * (number % 11))
    queue.put(session, np.float32(number))
    put = time.perf_counter()
    ready.acquire()
    seconds.append(max(0.0, taken[number] - put))
  consumer.join()
  return sorted(seconds)


def report(batch, medians):
  """Prints one batch size; returns its rows, whose steps are a put and a get."""
  stock_put, stock_get = medians["enqueue_many"]
  for name, (put, get) in medians.items():
    print("batch %4d  %-17s put %6.3f ms (%4.2f)   get %6.3f ms (%4.2f)   both %4.2f" % (
      batch, name, 1000 * put, put / stock_put, 1000 * get, get / stock_get,
      (put + get) / (stock_put + stock_get)))
  return [rows.row("queue", "loopback", name, "batch=%d" % batch, [1 / (put + get)],
                   (stock_put + stock_get) / (put + get))
          for name, (put, get) in medians.items()]


def main(argv):
  """Runs the comparison."""
  del argv
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  address = find_free_addresses(1)[0]
  ps = subprocess.Popen([sys.executable, "-c", SERVE, address], stderr=subprocess.DEVNULL)
  sessions = []
  try:
    calls = {int(batch): make_calls(lambda: sessions[0], int(batch), FLAGS.floats)
             for batch in FLAGS.batches}
    single = tf1ps.FIFOQueue(10, [tf.float32], [[]], shared_name="one", device="/job:ps/task:0")
    sessions.append(tf.Session("grpc://" + address))
    print("TensorFlow %s, elements of %d floats, %d runs, medians and ratios to TensorFlow's" % (
      tf.__version__, FLAGS.floats, FLAGS.runs))
    found = []
    for batch, pairs in calls.items():
      found += report(batch, compare(pairs, FLAGS.runs))
    if FLAGS.json:
      rows.write(FLAGS.json, found)
    seconds = arrivals(sessions[0], single, max(10, FLAGS.runs // 10))
    print("arrival: median %.1f ms, 95 %% within %.1f ms, at most %.1f ms" % (
      1000 * statistics.median(seconds), 1000 * seconds[int(0.95 * len(seconds))],
      1000 * seconds[-1]))
  finally:
    for session in sessions:  # before the ps ends: without a ps, the exit would hang
      session.close()
    ps.kill()
    ps.wait()


if __name__ == "__main__":
  app.run(main)
