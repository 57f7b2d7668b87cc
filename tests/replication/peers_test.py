"""A worker that is killed or stands still in the middle of an all-reduce: nobody hangs."""
from __future__ import annotations

import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tests.replication import nodes as nodes_lib
from tf1ps.cluster import probe
from tf1ps.cluster import session as session_lib
from tf1ps.cluster.description import Task
from tf1ps.replication import mirrored_model, peers


@pytest.fixture
def own_nodes(forks):
  with nodes_lib.started(forks, num_ps=0) as started:
    yield started


class Clock(object):
  """Stands in for the module `time` of the watches: time passes with the silence of a lost task.

  The two others look for it. If more than 1.75 s pass between two looks of a watch, it gives time.
  """

  def __init__(self, monkeypatch):
    self._now, self.lost = 0.0, None
    self.sleep, probe_task = threading.Event().wait, probe.probe_task

    def probe_and_pass(task, timeout):
      found = probe_task(task, timeout if task == self.lost else harness.LIMIT)
      if found.is_silent:
        self.skip(0.7)
      return found

    monkeypatch.setattr(probe, "time", self)
    monkeypatch.setattr(probe, "probe_task", probe_and_pass)

  def monotonic(self):
    return self._now

  def skip(self, seconds):
    self._now += seconds


class Trainer(object):
  """One of three tasks that train for ever, with a watch over the others; notes how it ends."""

  def __init__(self, nodes, index):
    self.error = None
    self.trains = threading.Event()
    with nodes.graph("trainers") as graph:
      self._model = mirrored_model.build_mirrored(
        lambda i: tf.square(tf.get_variable("w", initializer=0.0) - 1.0),
        [nodes_lib.WORKERS[index]], lambda: tf.train.GradientDescentOptimizer(0.1), index, 3)
      self._initialise = tf.global_variables_initializer()
    self.session = session_lib.BoundedSession(
      nodes.target(index), graph, tf.ConfigProto(device_filters=nodes_lib.WORKERS))
    self._others = [task for task in nodes.workers if task.index != index]
    self.thread = threading.Thread(target=self._train, daemon=True)
    self.thread.start()

  def _train(self):
    try:
      with peers.watch_peers(self.session, self._others, heartbeat_timeout=1.0):
        self.session.run(self._model.check_op)
        self.session.run(self._initialise)
        self.session.run(self._model.start_op)
        while True:
          self.session.run(self._model.train_op)
          self.trains.set()
    except Exception as error:
      self.error = error
    finally:
      self.session.close()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_error_of_the_others_names_the_lost_task(own_nodes, monkeypatch, number):
  clock = Clock(monkeypatch)
  trainers = [Trainer(own_nodes, i) for i in range(3)]
  try:
    harness.wait_until(lambda: all(one.trains.is_set() for one in trainers)
                       or any(one.error for one in trainers))
    assert [one.error for one in trainers] == [None] * 3
    clock.lost = own_nodes.workers[2]
    own_nodes.servers[2].signal(number)
    for one in trainers[:2]:
      one.thread.join(harness.LIMIT)
      assert isinstance(one.error, peers.PeerLostError)
      assert "lost /job:worker/task:2 at" in str(one.error)
  finally:
    for one in trainers:
      one.session.abort(lambda: KeyError("the test is over"))
      one.thread.join(harness.LIMIT)


@pytest.mark.parametrize("is_gone", [False, True], ids=["there", "gone"])
def test_a_run_that_ended_before_the_watch_noticed(start, is_gone):
  address, = harness.addresses(1)
  server = start("local", cluster_tasks.serve, {"local": [address]}, "local", 0)
  server.wait_for("up")
  end = tf.errors.CancelledError(None, None, "somebody left")
  with tf.Graph().as_default() as graph, session_lib.BoundedSession(graph=graph) as session:
    with pytest.raises(peers.PeerLostError if is_gone else tf.errors.CancelledError) as raised:
      with peers.watch_peers(session, [Task("local", 0, address)]):
        if is_gone:
          server.kill()
        raise end
  assert (raised.value.__cause__ if is_gone else raised.value) is end


def test_a_task_that_is_not_there_is_named(monkeypatch):
  clock = Clock(monkeypatch)
  clock.sleep = clock.skip
  absent = Task("worker", 7, harness.addresses(1)[0])
  with tf.Graph().as_default() as graph, session_lib.BoundedSession(graph=graph) as session:
    with pytest.raises(probe.TaskUnavailableError, match="/job:worker/task:7 at .*: refused"):
      with peers.watch_peers(session, [absent], timeout=0.2):
        pass
