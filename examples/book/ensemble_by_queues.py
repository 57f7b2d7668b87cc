"""An ensemble linked by queues, in its plainest form: a feeder, networks, and an aggregator.

Example B35. Section: parallel.
Mechanism: the feeder puts an input into a queue for each network. Each network takes it out and
puts its prediction into a queue of its own. The aggregator takes a prediction of each network, with
a time limit. Every part is a client with a graph and a session of its own, and they share only the
names of the queues. So each may be a process elsewhere. Here they take turns in one process.
Network i predicts 2 + 4 i times its input. Network 2 is late for request 1.
What to look for: a dead network costs its prediction and the time limit, no more. A `dequeue` that
times out takes nothing, so the late prediction stays in its queue. The next request gets it: the
10.0 in the answer to request 2 is 10 times the input of request 1.
../ensemble_queues.py closes that gap by the number of the request, does not wait again for a
network that has timed out, and ends.
Toolkit: bare TensorFlow (docs/replication.md#ensembles).

    $ python examples/book/ensemble_by_queues.py
    net 2 timed out
    request 1: [2.0, 6.0] mean 4.0
    request 2: [4.0, 12.0, 10.0] mean 8.7
"""


import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and a worker; none: free ones.")

NETWORKS = range(3)
LIMIT = tf.ConfigProto(operation_timeout_in_ms=1000)  # of each dequeue


def make_queues():
  """The queues of inputs and of predictions, in the same way in each client."""
  with tf.device("/job:ps/task:0"):
    return [[tf.queue.FIFOQueue(10, tf.float32, [[]], shared_name="%s_%d" % (name, index))
             for index in NETWORKS] for name in ("inputs", "predictions")]


def feed(target, value):
  """Puts a request into the queue of each network."""
  with tf.Graph().as_default(), tf.Session(target) as session:
    inputs, _ = make_queues()
    session.run([queue.enqueue(value) for queue in inputs])


def predict(target, index):
  """Network `index`: answers one request."""
  with tf.Graph().as_default(), tf.Session(target, config=LIMIT) as session:
    inputs, predictions = make_queues()
    y = (2.0 + 4.0 * index) * inputs[index].dequeue()
    session.run(predictions[index].enqueue(y))


def aggregate(target):
  """Takes a prediction of each network that has one in time."""
  with tf.Graph().as_default(), tf.Session(target, config=LIMIT) as session:
    answers = []
    for index, queue in enumerate(make_queues()[1]):
      try:
        answers.append(float(session.run(queue.dequeue())))
      except tf.errors.DeadlineExceededError:
        print("net %d timed out" % index)
    return "%s mean %.1f" % (answers, np.mean(answers))


def main(_):
  """Starts the servers here, to need one shell only, and makes two requests."""
  ps, worker = flags.FLAGS.hosts or find_free_addresses(2)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": [worker]}
  servers = [tf.train.Server(cluster, job, 0) for job in ("worker", "ps")]
  target = servers[0].target

  feed(target, 1.0)
  predict(target, 0)
  predict(target, 1)
  print("request 1:", aggregate(target))
  predict(target, 2)  # too late
  feed(target, 2.0)
  predict(target, 0)
  predict(target, 1)
  print("request 2:", aggregate(target))


if __name__ == "__main__":
  app.run(main)
