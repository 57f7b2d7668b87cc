"""A worker that is killed or stands still in the middle of an all-reduce: nobody hangs."""
from __future__ import annotations

import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.replication import nodes as nodes_lib
from tf1ps.cluster import readiness
from tf1ps.cluster import session as session_lib
from tf1ps.cluster.view import Task
from tf1ps.replication import all_reduce, peers


@pytest.fixture
def own_nodes(forks):
  with nodes_lib.started(forks, num_ps=0) as started:
    yield started


def train(nodes, index, ends, trains):
  """Trains for ever as one of three tasks, with a watch over the others; notes how it ends."""
  with nodes.graph() as graph:
    model = all_reduce.build_mirrored(
      lambda i: tf.square(tf.get_variable("w", initializer=0.0) - 1.0), [nodes_lib.WORKERS[index]],
      lambda: tf.train.GradientDescentOptimizer(0.1), index, 3)
    initialise = tf.global_variables_initializer()
  session = session_lib.BoundedSession(
    nodes.target(index), graph, nodes.config(nodes_lib.WORKERS[index]))
  try:
    others = [task for task in nodes.workers if task.index != index]
    with peers.watch_peers(session, others, lost_after=0.5):
      session.run(model.check_op)
      session.run(initialise)
      session.run(model.start_op)
      while True:
        session.run(model.train_op)
        trains[index].set()
  except Exception as error:
    ends[index] = error
  finally:
    session.close()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_others_are_told_who_is_gone(own_nodes, number):
  nodes = own_nodes
  ends, trains = {}, [threading.Event() for _ in range(3)]
  threads = [threading.Thread(target=train, args=(nodes, i, ends, trains), daemon=True)
             for i in range(3)]
  for thread in threads:
    thread.start()
  harness.wait_until(lambda: all(event.is_set() for event in trains) or ends)
  assert not ends
  nodes.servers[2].signal(number)
  harness.wait_until(lambda: 0 in ends and 1 in ends)
  for index in (0, 1):
    # On TensorFlow 2 who was just talking to a killed task hears of it at once.
    assert isinstance(ends[index], (peers.PeerLostError, tf.errors.UnavailableError))
    assert "/task:2" in str(ends[index])
    threads[index].join(harness.LIMIT)
    assert not threads[index].is_alive()
  if number == signal.SIGSTOP:
    assert [type(ends[index]) for index in (0, 1)] == [peers.PeerLostError] * 2
    assert "lost /job:worker/task:2 at" in str(ends[0])


def test_who_is_not_there_is_named():
  absent = Task("worker", 7, harness.addresses(1)[0])
  with tf.Graph().as_default() as graph, session_lib.BoundedSession(graph=graph) as session:
    with pytest.raises(readiness.TaskUnavailableError, match="/job:worker/task:7 at .*: refused"):
      with peers.watch_peers(session, [absent], timeout=0.2):
        pass
