from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.training import local_loop, local_server
from tf1ps import cluster
from tf1ps.cluster import server as server_lib
from tf1ps.session import initialise, other_tasks
from tf1ps.session import membership as membership_lib
from tf1ps.state import heartbeat, run


@pytest.fixture
def record(request, monkeypatch):
  found = local_server.record(request.node.name.replace("_", "-"), harness.LIMIT)
  monkeypatch.setitem(server_lib._records, found.target, found)
  with tf.Graph().as_default():
    yield found


@pytest.fixture
def chief(record):
  found = membership_lib.Membership(record)
  found.start()
  yield found
  found.stop()


def barrier(session):
  """An operation that ends when each other worker has put a token into a queue."""
  queue = tf.queue.FIFOQueue(2, [tf.bool], [[]])
  return queue.dequeue_many(2).op


def test_a_local_init_op_that_waits_for_a_worker_that_never_comes(chief, set_timing, caplog):
  set_timing(other_tasks, reminder_interval=0.05)
  local_server.Worker(chief.record, 1).say(state=heartbeat.MEMBER_STARTING)
  chief.heartbeat.beat()
  with cluster.BoundedSession() as session:
    with pytest.raises(initialise.SessionCreationError, match="other workers: /job:worker/task:2 "
                       "has not come$"):
      other_tasks.run_local_init_op(session, barrier(session), chief, 0.3, 60.0, lambda: None)
    session.abort(RuntimeError)
  assert ": it waits for /job:worker/task:2 has not come" in caplog.text


def test_a_local_init_op_has_the_time_that_present_workers_take(chief, set_timing):
  set_timing(other_tasks, reminder_interval=0.05)
  for index in (1, 2):
    local_server.Worker(chief.record, index).say(state=heartbeat.MEMBER_STARTING)
  chief.heartbeat.beat()
  with cluster.BoundedSession() as session:
    with pytest.raises(initialise.SessionTimeoutError, match="the local_init_op has not ended$"):
      other_tasks.run_local_init_op(session, barrier(session), chief, 0.1, 0.6, lambda: None)
    session.abort(RuntimeError)


def test_the_chief_marks_the_run_before_it_runs_its_local_init_op(record, monkeypatch):
  def look(*unused):
    records = local_server.table(record).read()
    return (run.find_run(records, record.container).initialised,
            heartbeat.members_of(records, record.container)[0].state)

  found = []
  monkeypatch.setattr(
    other_tasks, "run_local_init_op", lambda *unused: found.append(look()))
  with tf.container(record.container):
    local_loop.Model()
  for index in (1, 2):
    local_server.Worker(record, index).say(state=heartbeat.MEMBER_DONE)
  with tf1ps.MonitoredTrainingSession(record.target):
    found.append(look())
  assert found == [(True, heartbeat.MEMBER_STARTING), (True, heartbeat.MEMBER_TRAINING)]


class Follower(object):
  """A worker's membership, as far as its wait for the chief needs it."""

  def __init__(self, chief):
    self.cluster, self.watch = chief.cluster, chief.watch


def test_the_wait_for_a_chief_that_has_failed_says_why_once(chief, set_timing, caplog):
  set_timing(other_tasks, reminder_interval=0.0, first_report=0.0)
  chief.report(heartbeat.MEMBER_FAILED, "ValueError: of the program")
  with pytest.raises(cluster.TaskUnavailableError, match=(
      "the chief failed: ValueError: of the program, and no new process of it has come after "
      r"\d+ s: /job:worker/task:0 at")):
    other_tasks.await_chief(Follower(chief), lambda: None, 0.3, 60.0, lambda: None)
  assert [line for line in caplog.messages if "the chief" in line] == [
    "the chief /job:worker/task:0 at %s failed: ValueError: of the program. This task waits "
    "0.3 s for its restart" % chief.cluster.chief.address]


def test_the_wait_for_a_chief_that_lives_has_a_limit(chief):
  chief.heartbeat.beat()
  with pytest.raises(initialise.SessionTimeoutError, match="has not initialised the run"):
    other_tasks.await_chief(Follower(chief), lambda: None, 60.0, 0.1, lambda: None)
  assert other_tasks.await_chief(Follower(chief), lambda: 7, 60.0, 0.1, lambda: None) == 7
