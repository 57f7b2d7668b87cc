"""What the tests of queue-linked ensembles run as processes: networks, a feeder, an aggregator."""
from __future__ import annotations

import tensorflow.compat.v1 as tf

from tests.cluster_tasks import say
from tf1ps.replication import queue_ensemble


def serve(target, options, index, factor):
  """Network `index`: its inputs times a factor, computed in a session of its own."""
  with tf.Graph().as_default() as graph:
    network = queue_ensemble.Network(queue_ensemble.QueueEnsemble(**options), index)
  with tf.Graph().as_default() as model_graph:
    inputs = tf.placeholder(tf.float32, [None])
    outputs = factor * inputs
  with tf.Session(target, graph) as session, tf.Session(graph=model_graph) as model:

    say("answered", network.serve(session, lambda values: model.run(outputs, {inputs: values})))


def feed(target, options, values):
  """A feeder that asks for these, one after the other, and closes the ensemble."""
  with tf.Graph().as_default() as graph:
    feeder = queue_ensemble.Feeder(queue_ensemble.QueueEnsemble(**options))
  with tf.Session(target, graph) as session:
    for value in values:
      feeder.feed(session, value, timeout=60)
    session.run(feeder.close)
  say("fed", feeder.missed)


def aggregate(target, options, timeout):
  """An aggregator that answers until the end, and says the answers."""
  with tf.Graph().as_default() as graph:
    last = queue_ensemble.Aggregator(
      queue_ensemble.QueueEnsemble(**options), timeout, quorum=options["networks"])
  with tf.Session(target, graph) as session:
    for answer in last.answers(session):
      say("%d: %s %s" % (answer.number, answer.predictions.tolist(), answer.combined))
