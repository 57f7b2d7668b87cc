from __future__ import annotations

import contextlib

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster import parsing, server
from tf1ps.state import pinning


def cluster_of(job="worker", index=1, **jobs):
  jobs = jobs or {"ps": ["a:1", "b:1"], "worker": ["c:1", "d:1"]}
  return parsing.from_cluster_spec(jobs, job, index)


@pytest.fixture
def knows(monkeypatch):
  """Has this process know a cluster, as if it had a server there."""
  def know(cluster, container=""):
    record = server.ServerRecord("grpc://x:1", cluster, container, None, False, None, 30.0)
    monkeypatch.setattr(server, "_records", {record.target: record})

  monkeypatch.setattr(server, "_records", {})
  return know


def place(name="q", **kwargs):
  """The device and the container of an operation that is built in the context."""
  with pinning.shared_placement(name, **kwargs):
    op = tf.raw_ops.MutexV2().op
  return op.device.replace("/device:CPU:0", ""), op.get_attr("container").decode()


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as made:
    yield made


# By the first eight bytes of the name's SHA-256.
@pytest.mark.parametrize("name, of_two, of_three", [
  ("a", 0, 1), ("b", 0, 1), ("q", 1, 0), ("todo", 1, 1)])
def test_a_name_is_pinned_by_its_hash(name, of_two, of_three):
  assert pinning.pinned_task(name, cluster_of()).index == of_two
  three = cluster_of(ps=["a:1", "b:1", "e:1"], worker=["c:1", "d:1"])
  assert pinning.pinned_task(name, three) == three.ps[of_three]


def test_names_are_spread_over_the_ps():
  counts = [pinning.pinned_task("name %d" % i, cluster_of()).index for i in range(200)]
  assert 70 < sum(counts) < 130


def test_without_ps_the_chief_has_it():
  cluster = cluster_of(worker=["c:1", "d:1"])
  assert pinning.pinned_task("q", cluster).name == "/job:worker/task:0"
  cluster = cluster_of(worker=["c:1", "d:1"], chief=["e:1"])
  assert pinning.pinned_task("q", cluster).name == "/job:chief/task:0"


def test_without_a_server_the_log_warns_once(knows, caplog):
  with caplog.at_level("WARNING", "tf1ps"):
    for _ in range(2):
      place("warned once")
    place("has a device", device="/job:ps/task:1")
    place("")
  said, = [record.getMessage() for record in caplog.records]
  assert said.startswith("'warned once' has a shared name, but this process has no ")
  assert 'same device="/job:ps/task:0"' in said


def test_without_a_server_nothing_is_pinned(knows):
  assert place() == ("", "")
  assert place(device="/job:ps/task:3", container="jobs/a") == ("/job:ps/task:3", "jobs/a")


def test_every_process_of_a_job_pins_it_alike(knows):
  for job, index in (("worker", 0), ("worker", 1), ("ps", 0)):
    knows(cluster_of(job, index))
    assert [place(name)[0] for name in "abq"] == [
      "/job:ps/task:0", "/job:ps/task:0", "/job:ps/task:1"]


@pytest.mark.parametrize("around, found", [
  ("/job:ps/task:0", "/job:ps/task:0"),
  ("/job:worker/task:0", "/job:worker/task:0"),  # another worker
  ("/job:worker/task:1", "/job:ps/task:1"),  # this one, of which a setter says so
  ("/job:worker", "/job:ps/task:1"),
  ("/cpu:0", "/job:ps/task:1"),
])
def test_a_device_around_it_counts_unless_it_is_this_workers(knows, around, found):
  knows(cluster_of())
  with tf.device(around):
    assert place()[0] == found


def test_a_device_that_is_given_wins(knows):
  knows(cluster_of())
  with tf.device("/job:ps/task:1"):
    assert place(device="/job:worker/task:1")[0] == "/job:worker/task:1"


def test_tensorflows_setter_does_not_decide(knows):
  knows(cluster_of())
  with tf.device(tf.train.replica_device_setter(2, worker_device="/job:worker/task:1")):
    assert place("q")[0] == "/job:ps/task:1"


@pytest.mark.parametrize("around, found", [
  ("", "/job:ps/task:1"),
  ("/cpu:0", "/job:ps/task:1"),
  ("/job:worker/task:0", "/job:worker/task:0"),
  ("/job:worker/task:1", "/job:worker/task:1"),  # else the other worker would have another queue
])
@pytest.mark.parametrize("inside", [True, False])
def test_a_device_in_or_after_our_setter_counts_also_if_it_is_this_workers(
    knows, around, found, inside):
  knows(cluster_of())
  setter = tf1ps.replica_device_setter(
    ps_tasks=2, worker_device="/job:worker/task:1", ps_strategy=lambda op: 0)
  with contextlib.ExitStack() as stack:
    if inside:
      stack.enter_context(tf.device(setter))
    stack.enter_context(tf.device(around))
    assert place("q")[0] == found


def test_containers(knows, graph):
  assert place(container="jobs/b")[1] == "jobs/b"
  knows(cluster_of(), "jobs/a")
  assert place()[1] == "jobs/a"
  assert place(container="jobs/b")[1] == "jobs/b"
  with graph.container("jobs/c"):
    assert place()[1] == "jobs/c"
    assert place(container="jobs/b")[1] == "jobs/b"
  with pytest.raises(ValueError, match="'_' at position 1"):
    place(container="a_b")


def test_a_private_thing_stays_where_it_is(knows):
  knows(cluster_of(), "jobs/a")
  assert place("") == ("", "jobs/a")
  with tf.device("/job:worker/task:1"):
    assert place("")[0] == "/job:worker/task:1"
