"""One problem, trained asynchronously, synchronously, and split vertically: the time to a target.

Example X10.
Mechanism: two replicas with asynchronous updates, two replicas with synchronous updates, and one
network whose hidden layer has half of its columns on each worker. The clock stops at the target.
A ps and two workers start once. They train one scheme after the other, each time in another
container. The problem is a network 64-128-10 on the digits that come with the project. The target
is 93 % of the digits that it was not trained with. Worker 0 measures this every ten steps, which is
part of the time. A barrier starts the clock when both workers are ready. A replica's batch has 50
digits, so a synchronous update uses 100. The split network is one network and gets 100, too.
What to look for: an asynchronous update uses half as many digits, and counts as one step all the
same. So it takes more global steps. Compare the times or the digits instead. In each step the split
sends every batch to both workers and gets half of the hidden layer back. It needs no ps, so one
process less is at work here. (model_parallel.py compares a split with the same network unsplit.)
Machine and network decide which scheme is the fastest. Medians of --repeats=5, on 2 cores,
TensorFlow 2.21:

    asynchronous     0.34           169         8450     0.950
    synchronous      0.76           100        10000     0.936
    vertical         0.34           100        10000     0.936

The graphs are in scheme_graphs.py.
Toolkit: tf1ps.SyncReplicasOptimizer (docs/replication.md#synchronous-updates), Barrier and
DoneQueues.

    $ python examples/exercises/three_schemes.py
    scheme        seconds  global steps  digits used  accuracy
    asynchronous  ...  0.9...
    synchronous   ...  0.9...
    vertical      ...  0.9...

That starts all tasks on this machine. By hand, start each task in a shell of its own: its arguments
are its job, its index, and the addresses of the ps and of both workers.
"""

import pathlib
import statistics
import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags
from scheme_graphs import PS, WORKERS, Model

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import Barrier, DoneQueues, container_scope

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_integer("repeats", 1, "Of which the median is shown.")

BATCH, TARGET, LIMIT = 50, 0.93, 20000
SCHEMES = ("asynchronous", "synchronous", "vertical")


def train(model, session, batch, index):
  """Trains until worker 0 finds that the target is reached; returns the accuracy."""
  (images, digits), (test_images, test_digits) = handwritten_digits.read_to_feed()
  order = np.random.RandomState(index)
  for step in range(LIMIT):
    rows = order.randint(len(digits), size=batch)
    try:
      _, reached = session.run([model.train_op, model.reached],
                               {model.images: images[rows], model.digits: digits[rows]})
    except tf.errors.OutOfRangeError:  # the other replica has left, as the target is reached
      return None
    if reached:
      return None
    if index == 0 and step % 10 == 9:
      accuracy = session.run(model.accuracy, {model.images: test_images, model.digits: test_digits})
      if accuracy >= TARGET:
        return float(accuracy)
  raise RuntimeError("after %d steps the target is not reached" % LIMIT)


def seeing(tasks):
  """A session of the rest of the cluster would wait for it at its end, without a limit."""
  return tf.ConfigProto(device_filters=tasks)


def run(scheme, repeat, server, index, cluster, together):
  """Trains with a scheme once; returns (seconds, global steps, digits used, accuracy)."""
  batch = 2 * BATCH if scheme == "vertical" else BATCH
  with tf.Graph().as_default() as graph, container_scope("%s-%d" % (scheme, repeat)):
    tf.set_random_seed(repeat)
    model = Model(scheme, index, cluster)
    others = WORKERS if scheme == "vertical" else [PS, WORKERS[index]]
    with tf.Session(server.target, graph, seeing(others)) as session:
      if index == 0:
        session.run(model.initialize)
        session.run(model.join)
      together()
      if index:
        session.run(model.join)
      together()
      start, accuracy = time.monotonic(), None
      if index == 0 or scheme != "vertical":
        accuracy = train(model, session, batch, index)
      seconds = time.monotonic() - start
      steps = int(session.run(model.global_step))
      if index == 0:
        session.run([model.stop, model.leave])
  together()  # a session's end needs all tasks that it sees
  return seconds, steps, steps * (BATCH if scheme == "asynchronous" else 2 * BATCH), accuracy


def main(argv):
  """Serves as the ps, or goes through the schemes as a worker."""
  if len(argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(3)
    return run_together(lambda: app.run(main), *[
      sys.argv[1:] + [job, index] + hosts
      for job, index in [("worker", "0"), ("worker", "1"), ("ps", "0")]])
  job, index, ps, *workers = argv[1:]
  tf.disable_v2_behavior()
  cluster, index = {"ps": [ps], "worker": workers}, int(index)
  server = tf1ps.Server(cluster, job, index)
  done = DoneQueues(2, places=[PS], container="")
  task = "/job:%s/task:%d" % (job, index)
  with tf.Session(server.target, config=seeing([PS, task])) as session:
    if job == "ps":
      done.wait(session, timeout=3600.0, linger=4.0)
      return
    barrier_of_two = Barrier("schemes", 2, index, device=PS)

    def together():
      barrier_of_two.wait(session, timeout=300.0)

    results = {scheme: [] for scheme in SCHEMES}
    for repeat in range(flags.FLAGS.repeats):
      for scheme in SCHEMES:
        results[scheme].append(run(scheme, repeat, server, index, cluster, together))
    if index == 0:
      print("scheme        seconds  global steps  digits used  accuracy")
      for scheme in SCHEMES:
        print("%-12s %8.2f  %12d  %11d  %8.3f" % (
          (scheme,) + tuple(statistics.median(column) for column in zip(*results[scheme]))))
    done.report(session, index)


if __name__ == "__main__":
  app.run(main)
