"""What is said of a worker without which the others cannot make a step."""
from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.cluster import parsing, probe
from tf1ps.cluster.description import Task
from tf1ps.cluster.session import BoundedSession
from tf1ps.replication import peers, session_ops
from tf1ps.session import mirrored_sessions
from tf1ps.state import heartbeat


def part_of(state, reason):
  """A participation in which worker 1 last said this of itself."""
  member = heartbeat.Member(
    "worker", 1, "worker", "here", 1, "run", state, 0, 0, 0, reason, 0.0)
  return types.SimpleNamespace(
    run_id="run", is_over=False, unless_over=lambda end_session: end_session(),
    heartbeat=types.SimpleNamespace(beat=lambda: None, members=lambda: [member]))


@pytest.fixture(autouse=True)
def patience(monkeypatch):
  """Gives a busy machine its time for a probe."""
  monkeypatch.setattr(peers, "probe_tasks", lambda tasks: probe.probe_tasks(tasks, harness.LIMIT))


def says(part, before):
  """The error's text where a step ends because somebody else has left."""
  cancelled = tf.errors.CancelledError(None, None, "cancelled")
  found = mirrored_sessions.explain(part, before, cancelled)
  assert found is cancelled or isinstance(found, tf.errors.AbortedError)
  return found.message


@pytest.mark.parametrize("is_started_again", [False, True])
def test_a_worker_that_was_started_again_is_lost_whatever_the_new_one_says(
    start, is_started_again):
  jobs = {"worker": harness.addresses(2)}
  task = Task("worker", 1, jobs["worker"][1])
  first = start("first", cluster_tasks.serve, jobs, "worker", 1)
  before = probe.wait_for_tasks([task], harness.LIMIT)
  failed = part_of(heartbeat.MEMBER_FAILED, "no data today")
  assert says(part_of(heartbeat.MEMBER_TRAINING, ""), before) == "cancelled"
  first.kill()
  if is_started_again:
    start("second", cluster_tasks.serve, jobs, "worker", 1)
    harness.wait_until(lambda: probe.probe_task(task).is_up)
    expected = "lost /job:worker/task:1 at %s: it was started again; start all" % task.address
  else:  # what it said is why
    expected = "/job:worker/task:1 failed: no data today; start all"
  assert says(failed, before).startswith(expected)
  assert isinstance(mirrored_sessions.lost(failed, before), peers.PeerLostError)
  mistake = tf.errors.InvalidArgumentError(None, None, "a mistake of the program")
  assert mirrored_sessions.explain(failed, before, mistake) is mistake


def test_a_message_of_an_earlier_session_is_a_reason_to_begin_anew():
  late = tf.errors.InvalidArgumentError(None, None, (
    "assertion failed: [/job:worker/task:0 has sent a message of an earlier session]"))
  found = mirrored_sessions.explain(None, [], late)
  assert isinstance(found, tf.errors.AbortedError) and "an earlier session" in found.message


def test_a_refusal_of_a_task_that_is_there_ends_neither_session_nor_watch(start):
  jobs = {"worker": harness.addresses(2)}
  task = Task("worker", 1, jobs["worker"][1])
  process = start("worker", cluster_tasks.serve, jobs, "worker", 1)
  before = probe.wait_for_tasks([task], harness.LIMIT)
  part = part_of(heartbeat.MEMBER_TRAINING, "")
  with tf.Graph().as_default(), BoundedSession() as session:
    assert mirrored_sessions.on_gone(session, part, before, before[0]) and not session.is_aborted
    process.kill()
    gone = probe.probe_task(task, harness.LIMIT)
    part.is_over = True
    assert mirrored_sessions.on_gone(session, part, before, gone) and not session.is_aborted
    part.is_over = False
    assert not mirrored_sessions.on_gone(session, part, before, gone)
    with pytest.raises(tf.errors.AbortedError, match="task:1 at .*: refused"):
      session.run([])


class Start(object):
  """A start of worker 0; at each beat worker 1 says another of these sessions of run 3."""

  def __init__(self, *sessions):
    self.cluster = parsing.resolve_cluster(
      worker_hosts=harness.addresses(2), job_name="worker", task_index=0, needs_ps=False)
    self.run_id, self.generation, self.heartbeat, self._sessions = "run", 7, self, sessions
    self.run = self
    self.beats, self._session = 0, 0
    with tf.Graph().as_default():
      self._ran = tf.get_variable("ran", [], tf.int64, tf.zeros_initializer(), use_resource=True)
      generation = tf.placeholder_with_default(tf.constant(0, tf.int64), [])
      session_ops.add_all_reduce_start(
        self._ran.assign_add(generation).op, tf.no_op(), generation)
      self.session = BoundedSession()
      self.session.run(self._ran.initializer)

  @property
  def ran(self):
    return self.session.run(self._ran)

  def begin_session(self):
    self._session = 3

  def get(self, field):
    return {"session": self._session}[field]

  def beat(self):
    if self.beats < len(self._sessions):
      assert self.ran == 0
    self.beats += 1

  def members(self):
    last = self._sessions[min(self.beats, len(self._sessions)) - 1]
    return [heartbeat.Member("worker", 1, "worker", "here", 1, "run", "training", 0, 0, 0, "", 0.0,
                             session=last)]

  def make(self, limit=60.0):
    try:
      mirrored_sessions.start(self.session, self, limit, lambda: None)
      return self.ran
    finally:
      self.session.close()


def test_no_message_is_sent_before_the_earlier_sessions_of_all_have_ended():
  begun = Start(0, 2, -2, 3)
  assert begun.make() == 7 and begun.beats == 4


def test_one_whose_earlier_session_does_not_end_is_named():
  begun = Start(2)
  with pytest.raises(peers.PeerLostError, match="^/job:worker/task:1 did not join the start with"):
    begun.make(0.3)


def test_a_start_whose_session_is_lost_in_the_wait_ends():
  begun = Start(2)
  begun.session.abort(lambda: tf.errors.AbortedError(None, None, "worker 1 begins anew"))
  begun.beat = lambda: None
  with pytest.raises(tf.errors.AbortedError, match="worker 1 begins anew"):
    begun.make()
