"""The three best networks of a search as one ensemble, used where they were trained.

Example X9.
Mechanism: networks built in the containers, on the tasks and under the names of their training.
The search runs in one shell, and keeps its servers. This program is a client, like those that
trained. It builds three of the networks once more, in one graph, with the mean of their
probabilities. It runs no initializer and reads no checkpoint: it finds the values of a container by
their names.
What to look for: on the validation set each network is right as often as after its training. In
containers of other names all variables are uninitialised. No network has seen the test set before.
It shows how good the three are, and how good their mean is. The mean is better than the best of
them, because they were trained with different digits and err in different places. The size of the
gain is luck: with --seed=0 to 9 of the search the mean was right 8, 2, 11, 6, 19, 20, 8, 8, 9 and
15 times more often than the best of the three (663 of 720 against 655 in the first case; measured
on 2 cores, 1.15).
Toolkit: tf1ps.state.container_scope (docs/replication.md#ensembles).

    $ python examples/exercises/ensemble_of_three.py
    ...
    the top three: network-..., network-..., network-...
    variables to initialise: 0 of 12; in other containers: 12 of 12
    network-...: ... of 360 when it was trained, ... now: the same
    network-...: ... of 360 when it was trained, ... now: the same
    network-...: ... of 360 when it was trained, ... now: the same
    network-...: ... of 720 in the test set
    network-...: ... of 720 in the test set
    network-...: ... of 720 in the test set
    the ensemble: ... of 720, ... more than the best of the three

That starts the search as well. By hand, run hyper_parameter_search.py with --for_ensemble and four
--hosts in one shell, and this program with --server=grpc://HOST:PORT, one of them, in another.
"""

import json
import os
import subprocess
import sys

import one_network
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses
from tf1ps.state import DoneQueues, container_scope

FLAGS = flags.FLAGS  # with --server, which one_network.py defines

FIRST = "/job:worker/task:0"
LIMIT = 600.0  # seconds for the search


def build(chosen, other=""):
  """Builds the networks in their containers (`other` goes before their names), and the mean."""
  images = tf.placeholder(tf.float32, [None, 64])
  answers = []
  for one in chosen:
    name = one["container"]
    with container_scope(other + name), tf.device(one["device"]), tf.variable_scope(name):
      answers.append(tf.nn.softmax(one_network.network(images, one["hidden"])))
  with tf.device(FIRST):
    return images, answers + [tf.add_n(answers) / len(answers)]


def uninitialized(server, chosen, other=""):
  """Says how many variables have no value: "0 of 12"."""
  with tf.Graph().as_default(), tf.Session(server) as session:
    build(chosen, other)
    return "%d of %d" % (
      len(session.run(tf.report_uninitialized_variables())), len(tf.global_variables()))


def ask(session, images, answers, digits):
  """Returns how often each network is right, and the ensemble."""
  said = session.run(answers, {images: digits.images})
  *singles, combined = [one_network.right(probabilities, digits) for probabilities in said]
  return singles, combined


def main(_):
  """Uses the networks of a search, or starts one first."""
  if FLAGS.server:
    return use(FLAGS.server)
  hosts = find_free_addresses(4)
  folder = os.path.dirname(os.path.abspath(__file__))
  search = subprocess.Popen([sys.executable, os.path.join(folder, "hyper_parameter_search.py"),
                             "--for_ensemble", "--hosts=" + ",".join(hosts)])
  try:
    use("grpc://" + hosts[0])
    return search.wait(60.0)
  finally:
    search.kill()


def use(server):
  """Waits for the search, and asks its three networks together."""
  tf.disable_v2_behavior()
  queue = tf1ps.FIFOQueue(1, [tf.string], [[]], shared_name="top three", device=FIRST)
  done = DoneQueues(1, ["the ensemble"], places=[FIRST], container="")
  # Without a limit, a session waits for ever for a server that never starts.
  config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * LIMIT))
  with tf.Session(server, config=config) as session:
    chosen = json.loads(queue.get(session, timeout=LIMIT).decode())
    try:
      print("variables to initialise: %s; in other containers: %s" % (
        uninitialized(server, chosen), uninitialized(server, chosen, "other-")))
      _, validate, test = one_network.read_digits()
      with tf.Graph().as_default() as graph:
        images, answers = build(chosen)
        with tf.Session(server, graph) as asking:
          again, _ = ask(asking, images, answers, validate)
          singles, combined = ask(asking, images, answers, test)
    finally:
      done.report(session, 0)
  for network, count in zip(chosen, again):
    print("%s: %d of 360 when it was trained, %d now: %s" % (
      network["container"], network["right"], count,
      "the same" if count == network["right"] else "not the same"))
  for network, count in zip(chosen, singles):
    print("%s: %d of 720 in the test set" % (network["container"], count))
  more = combined - max(singles)
  print("the ensemble: %d of 720, %d %s than the best of the three" % (
    combined, abs(more), "more" if more > 0 else "fewer"))


if __name__ == "__main__":
  app.run(main)
