from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks
from tf1ps.replication import ensemble
from tf1ps.state import containers

TWO_CPUS = tf.ConfigProto(device_count={"CPU": 2})
X = np.linspace(-1, 1, 8).reshape(4, 2).astype(np.float32)


def network(units):
  """A network with its own number of hidden units."""
  def build(inputs):
    hidden = tf.get_variable("hidden", [2, units], initializer=tf.random_normal_initializer())
    outputs = tf.get_variable("outputs", [units, 3], initializer=tf.random_normal_initializer())
    return tf.matmul(tf.tanh(tf.matmul(inputs, hidden)), outputs)

  return build


def run_alone(values, inputs):
  """The same network in numpy."""
  hidden, outputs = values
  return np.tanh(inputs @ hidden) @ outputs


def test_it_is_the_mean_of_its_networks_each_on_its_device():
  with tf.Graph().as_default():
    one = ensemble.in_graph_ensemble(
      tf.constant(X), [network(units) for units in (2, 3, 4)], ["/cpu:0", "/cpu:1", "/cpu:0"])
    variables = tf.global_variables()
    assert [v.op.name for v in variables] == [
      "network_%d/%s" % (i, name) for i in range(3) for name in ("hidden", "outputs")]
    assert [v.device[-5:] for v in variables] == ["CPU:0"] * 2 + ["CPU:1"] * 2 + ["CPU:0"] * 2
    assert [p.device[-5:] for p in one.predictions] == ["CPU:0", "CPU:1", "CPU:0"]
    assert one.combined.device == ""
    with tf.Session(config=TWO_CPUS) as session:
      session.run(tf.global_variables_initializer())
      values, combined, predictions = session.run([variables, one.combined, one.predictions])
  alone = [run_alone(values[i:i + 2], X) for i in (0, 2, 4)]
  np.testing.assert_allclose(predictions, alone, atol=1e-6)
  np.testing.assert_allclose(combined, np.mean(alone, 0), atol=1e-6)


VOTES = [
  ([[1], [2], [2]], [2]),
  ([[3], [1], [2]], [1]),  # a draw: the lowest
  ([[0, 5], [0, 4], [9, 4], [9, 7]], [0, 4]),
  ([[7, 2]], [7, 2]),
  ([[[1, 0], [0, 1]], [[1, 1], [0, 0]], [[0, 1], [1, 1]]], [[1, 1], [0, 1]]),
]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("votes, winner", VOTES)
def test_a_vote_in_the_graph_and_in_numpy(votes, winner, dtype):
  votes = np.array(votes, dtype)
  with tf.Graph().as_default(), tf.Session() as session:
    combined = session.run(ensemble.vote_predictions([tf.constant(vote) for vote in votes]))
  assert combined.tolist() == winner and combined.dtype == dtype
  combined = ensemble.vote_predictions(votes)
  assert combined.tolist() == winner and combined.dtype == dtype


def test_networks_that_vote():
  with tf.Graph().as_default(), tf.Session() as session:
    one = ensemble.in_graph_ensemble(
      tf.constant([4, 7]), [lambda x: x, lambda x: x + 1, lambda x: tf.minimum(x, 5)],
      ["/cpu:0"] * 3, ensemble.vote_predictions)
    assert session.run(one.combined).tolist() == [4, 5]


@pytest.mark.parametrize(
  "arguments, message",
  [
    (dict(networks=[], devices=[]), "needs networks"),
    (dict(devices=["/cpu:0"]), "2 networks need as many devices"),
    (dict(names=["a"]), "2 networks need as many names"),
    (dict(containers=["a"]), "2 networks need as many containers"),
    (dict(names=["a", "a"]), "must be different"),
    (dict(containers=["a", "b_c"]), "has '_' at position 1"),
    (
      dict(combine=ensemble.vote_predictions),
      ".* is of the type float32, and a vote is taken of classes, integers",
    ),
  ],
)
def test_arguments_that_cannot_work(arguments, message):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
    ensemble.in_graph_ensemble(tf.constant(X), **dict(
      dict(networks=[network(2), network(2)], devices=["/cpu:0", "/cpu:0"]), **arguments))


def test_a_mean_of_classes_is_refused():
  with tf.Graph().as_default(), pytest.raises(ValueError, match="Combine classes by vote_"):
    ensemble.mean_predictions([tf.constant(1)])


@pytest.mark.parametrize("use_resource", [False, True])
def test_networks_that_were_trained_in_containers_on_two_tasks(forks, use_resource):
  names = ["first", "second"]
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    target = "grpc://" + tasks[0].address
    values = []
    for name, task in zip(names, tasks):  # each trained by a client of its own, which goes
      with tf.Graph().as_default(), containers.container_scope("kept-" + name):
        with tf.device(task.name), tf.variable_scope(name, use_resource=use_resource):
          network(3)(tf.constant(X))
        with tf.Session(target) as session:
          session.run(tf.global_variables_initializer())
          values.append(session.run(tf.global_variables()))
    with tf.Graph().as_default(), tf.variable_scope("", use_resource=use_resource):
      one = ensemble.in_graph_ensemble(
        tf.constant(X), [network(3)] * 2, [task.name for task in tasks], names=names,
        containers=["kept-" + name for name in names])
      with tf.Session(target) as session:  # no initializer is run
        combined = session.run(one.combined)
  np.testing.assert_allclose(combined, np.mean([run_alone(v, X) for v in values], 0), atol=1e-6)
