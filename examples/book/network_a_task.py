"""A network per task: the same trained network on n tasks, for more predictions per second.

Example B33. Section: parallel.
Mechanism: the tasks share nothing. Each task has the whole network, in a process with one thread
for computing. The client gives each request, 100 images, to a task that is free.
A network per device has two uses. One is to train different networks at the same time:
examples/exercises/hyper_parameter_search.py. The other one is here, many predictions per second:
task 0 trains the network, and the other tasks get copies of its values.
- The client builds one graph, for one network and without a device. It has a session for each task.
  A device filter connects the session to this task alone. So each task has a variable of its own
  under the same name, no request passes through another task, and a task that stands still delays
  no answer of the others.
- Here one network answers a request, and in an ensemble all of them do (ensemble_in_graph.py). In
  ensemble_queues.py the requests are in a queue, and several processes may serve a network.

Use TensorFlow Serving instead when programs in other languages ask, or a new version of the network
must replace the old one while requests come. It loads a SavedModel: a folder whose name is the
version, the tag "serve", the signature "serving_default". The example saves one, loads it by these
names, and gets the same answers.
What to look for: each task gives the same answers as the first one. n tasks answer nearly n times
as often if each has a core of its own. Measured on 2 cores, which the client shares (TensorFlow
2.21, medians of 11 rounds): 1.52 times as many with 2 tasks, 1.54 times with 4.
Toolkit: bare TensorFlow; for many networks with one answer, docs/replication.md#ensembles.

    $ python examples/book/network_a_task.py
    trained on task 0: ... of 360 digits right
    all 2 tasks give the same answers: True
    the SavedModel gives the same answers: True
    1 task: ... predictions per second
    2 tasks: ... predictions per second, ... times as many
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import pathlib
import queue
import sys
import tempfile
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_list("hosts", None, "An address for each task; none: free ones.")
flags.DEFINE_integer("requests", 30, "Of a measurement.")
flags.DEFINE_integer("rounds", 5, "How many measurements, of which the median counts.")

BATCH, UNITS = 100, 2048


def serve(hosts, index, connection, held):
  """Serves as a task until the client closes its end of the connection, or ends."""
  for end in held:  # copies of the client's ends, which this process would keep open
    end.close()
  config = tf.ConfigProto(inter_op_parallelism_threads=1, intra_op_parallelism_threads=1)
  _server = tf.train.Server({"worker": hosts}, "worker", index, config=config)
  connection.send("there")
  with contextlib.suppress(EOFError):
    connection.recv()


def start_tasks(hosts, stack):
  """Forks a process for each task, so that TensorFlow is imported once; they end with `stack`."""
  fork, held = multiprocessing.get_context("fork"), []
  for index in range(len(hosts)):
    here, there = fork.Pipe()
    held.append(here)
    task = fork.Process(target=serve, args=(hosts, index, there, held), daemon=True)
    task.start()
    stack.callback(task.join, 30.0)
    stack.callback(here.close)
    there.close()
  for end in held:
    if not end.poll(60.0):
      raise RuntimeError("a task has not started within 60 s")
    end.recv()  # an EOFError if it has failed


def build_network():
  """Builds 64-2048-2048-10; returns images, labels, the predicted digits and a train op."""
  images, labels = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int32, [None])
  hidden = tf.nn.relu(tf.matmul(images, tf.get_variable("first", [64, UNITS])))
  hidden = tf.nn.relu(tf.matmul(hidden, tf.get_variable("second", [UNITS, UNITS])))
  logits = tf.matmul(hidden, tf.get_variable("logits", [UNITS, 10]))
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
  return images, labels, tf.argmax(logits, 1), train_op


def copy_values(source, sessions):
  """Gives the variables of all sessions the values that they have in `source`."""
  variables = tf.trainable_variables()
  values = dict(zip([v.initial_value for v in variables], source.run(variables)))
  for session in sessions:
    session.run([v.initializer for v in variables], values)


def answers_of_saved_model(session, images, digits, batch):
  """Saves the network for TensorFlow Serving, loads it as that does, and asks it."""
  with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "1")  # the version
    tf.saved_model.simple_save(session, path, {"images": images}, {"digits": digits})
    with tf.Graph().as_default(), tf.Session() as loaded:
      signature = tf.saved_model.load(loaded, ["serve"], path).signature_def["serving_default"]
      return loaded.run(signature.outputs["digits"].name, {
        signature.inputs["images"].name: batch})


def predictions_per_second(sessions, predict, batch, requests):
  """Sends so many requests; each task has two at a time, so that it never waits."""
  waiting = queue.Queue()
  for _ in range(requests):
    waiting.put(batch)

  def ask(session):
    with contextlib.suppress(queue.Empty):
      while True:
        predict(session, waiting.get_nowait())

  begin = time.monotonic()
  with concurrent.futures.ThreadPoolExecutor(2 * len(sessions)) as threads:
    list(threads.map(ask, sessions * 2))
  return requests * len(batch) / (time.monotonic() - begin)


def main(_):
  """The client: starts the tasks, trains, copies, measures."""
  tf.disable_v2_behavior()
  hosts = flags.FLAGS.hosts or find_free_addresses(2)
  train, test = handwritten_digits.read_to_feed()
  with contextlib.ExitStack() as stack:
    start_tasks(hosts, stack)  # before this process starts threads of TensorFlow
    images, labels, digits, train_op = build_network()
    sessions = [stack.enter_context(tf.Session("grpc://" + host, config=tf.ConfigProto(
      device_filters=["/job:worker/task:%d" % index]))) for index, host in enumerate(hosts)]
    sessions[0].run(tf.global_variables_initializer())
    order = np.random.RandomState(0)
    for _ in range(60):
      some = order.choice(len(train[1]), BATCH)
      sessions[0].run(train_op, {images: train[0][some], labels: train[1][some]})
    copy_values(sessions[0], sessions[1:])

    def predict(session, batch):
      return session.run(digits, {images: batch})

    answers = [predict(session, test[0]) for session in sessions]
    print("trained on task 0: %d of %d digits right" % (
      np.sum(answers[0] == test[1]), len(test[1])))
    print("all %d tasks give the same answers: %s" % (
      len(hosts), all(np.array_equal(answers[0], other) for other in answers)))
    saved = answers_of_saved_model(sessions[0], images, digits, test[0])
    print("the SavedModel gives the same answers:", np.array_equal(answers[0], saved))
    rates = {1: [], len(hosts): []}
    for _ in range(flags.FLAGS.rounds):  # in turns, so that both meet the machine in the same state
      for count, found in rates.items():
        found.append(predictions_per_second(
          sessions[:count], predict, test[0][:BATCH], flags.FLAGS.requests))
  one, many = [np.median(found) for found in (rates[1], rates[len(hosts)])]
  print("1 task: %.0f predictions per second" % one)
  print("%d tasks: %.0f predictions per second, %.2f times as many" % (
    len(hosts), many, many / one))


if __name__ == "__main__":
  app.run(main)
