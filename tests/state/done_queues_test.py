from __future__ import annotations

import itertools
import re
import time

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tests.state import barrier_tasks
from tf1ps.cluster import server as server_lib
from tf1ps.cluster import session as session_lib
from tf1ps.compat import TIMING, worker_service
from tf1ps.state import containers, done_queues

_numbers = itertools.count()
BOTH = ["/job:ps/task:0", "/job:ps/task:1"]


@pytest.fixture(scope="module")
def ps(forks):
  """Two stock ps; returns their tasks."""
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    yield tasks


class Client:
  """Done queues and a session, as a process has them."""

  def __init__(self, address, num_workers, **options):
    with tf.Graph().as_default() as graph:
      self.queues = done_queues.DoneQueues(num_workers, **options)
    self.session = tf.Session("grpc://" + address, graph=graph)

  def report(self, index):
    self.queues.report(self.session, index)

  def clear(self):
    self.queues.clear(self.session)

  def done(self, place=None):
    return self.queues.status(self.session, place).done

  def wait(self, timeout, place=None):
    return self.queues.wait(self.session, timeout, place)


@pytest.fixture
def client(ps):
  """Makes clients of a job of the test's own; closes their sessions."""
  job, made = "job%d" % next(_numbers), []

  def make(num_workers=2, at=0, container=job, places=BOTH, **options):
    made.append(Client(ps[at].address, num_workers, container=container, places=places, **options))
    return made[-1]

  yield make
  for one in made:
    one.session.close()


def test_every_place_learns_who_is_done_however_often_it_is_said(client):
  worker, first, second = client(), client(at=0), client(at=1)
  worker.report(1)
  worker.report(1)
  assert first.done(0) == second.done(1) == [1]
  client(at=1).report(1)  # it was restarted
  status = first.queues.status(first.session)
  assert str(status) == "1 of 2 workers done; missing: /job:worker/task:0"
  worker.report(0)
  for waiter, place in ((first, 0), (second, 1)):
    assert waiter.wait(60.0, place) == done_queues.DoneStatus([0, 1], [], [])
    assert str(waiter.wait(0, place)) == "2 of 2 workers done"


def test_a_limit_names_who_is_missing_and_takes_nothing(client):
  waiter = client(3, names=["chief", "left", "right"])
  waiter.report(1)
  for _ in range(2):
    with pytest.raises(done_queues.DoneTimeout) as raised:
      waiter.wait(0.05)
    assert re.fullmatch(r"after \d+\.\d s 1 of 3 workers done; missing: chief, right",
                        str(raised.value))
    assert raised.value.status == done_queues.DoneStatus([1], [0, 2], ["chief", "right"])
  # Nor does a waiter that comes later, or comes back, miss what another one saw.
  assert client(3).done() == [1]


def test_two_jobs_and_two_runs_do_not_meet(client):
  clients = [client(), client(container="other"), client(run="2"), client(run="3")]
  clients[2].report(0)
  clients[1].report(1)
  assert [one.done() for one in clients] == [[], [1], [0], []]


def test_clear_begins_anew(client):
  waiter = client()
  waiter.report(0)
  waiter.report(1)
  waiter.clear()
  assert waiter.done(0) == waiter.done(1) == []
  waiter.report(1)
  assert waiter.done(0) == waiter.done(1) == [1]


def test_reports_survive_a_reset_of_the_job(client, ps):
  waiter = client(container="job.reset")
  waiter.report(0)
  for task in ps:
    worker_service.cleanup_all(task.address, ["job.reset", "ps"], harness.LIMIT)
  assert waiter.done(0) == waiter.done(1) == client(container="job.reset").done() == [0]
  made = [op for op in waiter.session.graph.get_operations() if op.type == "FIFOQueueV2"]
  assert {op.get_attr("container").decode() for op in made} == {containers.CONTROL}


def test_a_ps_with_a_loop_of_its_own_ends_when_all_are_done(start):
  jobs = {"ps": harness.addresses(2), "worker": harness.addresses(2)}
  servers = [start("ps %d" % i, barrier_tasks.end_when_done, jobs, i, 2) for i in range(2)]
  for server in servers:
    server.wait_for("waits")
  with tf.Graph().as_default() as graph:
    queues = done_queues.DoneQueues(2, places=BOTH)
  config = tf.ConfigProto(device_filters=["/job:ps"])
  with session_lib.BoundedSession("grpc://" + jobs["ps"][0], graph, config) as session:
    queues.report(session, 0)
    reported = time.monotonic()
    queues.report(session, 1)
    for i, server in enumerate(servers):
      server.wait_for("ps %d: 2 of 2 workers done" % i)
    # The last worker has had time to close its session.
    assert time.monotonic() - reported >= TIMING.linger
  for server in servers:
    assert server.wait() == 0


@pytest.mark.parametrize("arguments, said", [
  (dict(num_workers=0), "num_workers must be a number above 0, got 0"),
  (dict(num_workers=2, names=["a"], places=BOTH), r"2 workers need as many names, got \['a'\]"),
  (dict(num_workers=2, places=[]), "at least one device"),
  (dict(num_workers=2), "this process has no tf1ps.Server"),
])
def test_arguments_are_checked(arguments, said, monkeypatch):
  monkeypatch.setattr(server_lib, "_records", {})
  with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
    done_queues.DoneQueues(**arguments)


def test_indices_and_limits_are_checked(client):
  one = client()
  with pytest.raises(ValueError, match="index must be from 0 to 1, got 2"):
    one.report(2)
  for timeout in (None, -1):
    with pytest.raises(ValueError, match="0 or more, got"):
      one.wait(timeout)
