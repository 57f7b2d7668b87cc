"""The protocol of done reports: a model of ending.py and of the heartbeats, and the real ones.

The last part has the model of done_queues.py, by which programs report with a loop of their own.
"""
from __future__ import annotations

import collections
import dataclasses
import itertools
import threading
from typing import NamedTuple

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tests.protocols.exploring import Step, explore, perform, transitions
from tests.training import local_server
from tf1ps.compat import worker_service
from tf1ps.session import ending, member_watch
from tf1ps.session import membership as membership_lib
from tf1ps.state import MEMBER_DONE, MEMBER_TRAINING, Heartbeat, containers, done_queues

TRAINING, REPORTED, HEARD, LEFT = "training", "reported", "heard", "left"


class Worker(NamedTuple):
  """A worker, the record of its heartbeat, and the chief's last reading of that."""

  state: str = TRAINING  # of the process: TRAINING, REPORTED (it repeats its report) or LEFT
  process: int = 0
  record: tuple = ()  # (process, whether it is done), or nothing
  read: tuple = ()  # the same, as the chief has read it last


class State(NamedTuple):
  workers: tuple
  heard: tuple = ()  # the (worker, process) that the chief's record names
  has_chief: bool = False  # whether the records have the chief's


def state_of(worker):
  if worker.state == REPORTED and worker.read == (worker.process, True):
    return HEARD
  return worker.state


class Model:
  """The heartbeats of workers and chief, the loss of all records, and processes that are killed."""

  def __init__(self, workers):
    self.start = State((Worker(),) * workers)

  def with_worker(self, whole, w, **fields):
    return whole._replace(workers=tuple(
      one._replace(**fields) if i == w else one for i, one in enumerate(whole.workers)))

  def beat(self, state, w):
    """A heartbeat of a worker, which leaves when it sees that its report was heard."""
    own = state.workers[w]
    state = self.with_worker(state, w, record=(own.process, own.state == REPORTED))
    if own.state == REPORTED and state.has_chief and (w, own.process) in state.heard:
      state = self.with_worker(state, w, state=LEFT)
    return state, state.workers[w].state

  def report(self, state, w):
    return self.beat(self.with_worker(state, w, state=REPORTED), w)

  def read(self, state):
    """A heartbeat of the chief."""
    for w, own in enumerate(state.workers):
      if own.record:
        state = self.with_worker(state, w, read=own.record)
    heard = [(w, own.read[0]) for w, own in enumerate(state.workers) if own.read and own.read[1]]
    return state._replace(has_chief=True, heard=tuple(heard)), None

  def lose(self, state):
    """A ps is lost, and all records with it."""
    for w in range(len(state.workers)):
      state = self.with_worker(state, w, record=())
    return state._replace(has_chief=False, heard=()), None

  def restart(self, state, w):
    """Another process of a task; it repeats a report that it finds there."""
    own = state.workers[w]
    process, was_done = own.process + 1, bool(own.record and own.record[1])
    state = self.with_worker(state, w, process=process, state=TRAINING)
    if was_done:
      return self.report(state, w)
    return self.beat(state, w)

  def restart_chief(self, state):
    """Another process of the chief, which knows only the records, and has not read them yet."""
    for w in range(len(state.workers)):
      state = self.with_worker(state, w, read=())
    return state._replace(has_chief=True, heard=()), None

  def actions(self, state):
    for w, own in enumerate(state.workers):
      if own.state == TRAINING:
        yield "report", w
      if own.state != LEFT:
        yield "beat", w
      yield "restart", w
    yield ("read",)
    yield ("lose",)
    yield ("restart_chief",)

  def steps(self, state):
    return [Step(action, *getattr(self, action[0])(state, *action[1:]))
            for action in self.actions(state)]


def shortened(state):
  """Numbers processes: 0 is the present one, and -1 are all before it."""
  def number(process, w):
    return 0 if process == state.workers[w].process else -1

  def of(record, w):
    return record and (number(record[0], w), record[1])

  return state._replace(
    workers=tuple(one._replace(process=0, record=of(one.record, w), read=of(one.read, w))
                  for w, one in enumerate(state.workers)),
    heard=tuple((w, number(process, w)) for w, process in state.heard))


class Checks:
  """What holds in every step; notes the transitions of the table."""

  def __init__(self, model):
    self.model, self.seen = model, collections.defaultdict(set)

  def __call__(self, state, step):
    for w, (before, own) in enumerate(zip(state.workers, step.state.workers)):
      if own.state == LEFT and before.state != LEFT:
        assert own.read == (own.process, True), "it left, and the chief has not read its report"
      if own.read and own.read[1] and before.read != own.read:
        assert before.record == own.read, "the chief has read a report that nobody made"
      assert own.read or not before.read or step.action == ("restart_chief",), (
        "the chief has forgotten a report")
      if own.state == REPORTED:
        after, _ = self.model.beat(step.state, w)
        after, _ = self.model.read(after)
        after, said = self.model.beat(after, w)
        assert said == LEFT, "its report is never heard"
      if state_of(before) != state_of(own):
        self.seen[state_of(before)].add((step.action[0], state_of(own)))
        if step.action[0] == "restart" and state_of(own) == REPORTED:  # it has found its report
          self.seen[state_of(before)].remove(("restart", REPORTED))
          self.seen[state_of(before)].add(("restart", TRAINING))


def test_all_states_of_two_workers_and_the_transitions_of_the_table():
  model = Model(2)
  checks = Checks(model)
  assert explore(model.start, model.steps, checks, shortened) == 852
  assert checks.seen == transitions(ending)


class LeavesAtOnce(Model):
  """A worker leaves when its report is in the records."""

  def beat(self, state, w):
    is_over = state.workers[w].state == REPORTED
    state, said = super().beat(state, w)
    return (self.with_worker(state, w, state=LEFT), LEFT) if is_over else (state, said)


class SaysItOnce(Model):
  """A worker does not repeat its report."""

  def beat(self, state, w):
    if state.workers[w].state == REPORTED and not state.workers[w].record:
      return state, REPORTED
    return super().beat(state, w)


class KeepsNothing(Model):
  """The chief forgets what is not in the records any more."""

  def read(self, state):
    for w, own in enumerate(state.workers):
      state = self.with_worker(state, w, read=own.record)
    return super().read(state)


class TakesNames(Model):
  """The chief names tasks as heard, and not processes."""

  def read(self, state):
    state, _ = super().read(state)
    return state._replace(heard=tuple(
      (w, state.workers[w].process) for w in range(len(state.workers))
      if any(w == one for one, _ in state.heard))), None


@pytest.mark.parametrize("bug, said", [
  (LeavesAtOnce, "it left, and the chief has not read its report"),
  (SaysItOnce, "its report is never heard"),
  (KeepsNothing, "the chief has forgotten a report"),
  (TakesNames, "it left, and the chief has not read its report")])
def test_a_bug_of_the_model_is_found(bug, said):
  model = bug(2)
  with pytest.raises(AssertionError, match=said):
    explore(model.start, model.steps, Checks(model), shortened)


_numbers = itertools.count()


@pytest.fixture(autouse=True)
def a_busy_chief_lives(set_timing):
  """However long the steps of a test take, the chief between them is no silent one."""
  set_timing(membership_lib, alive_within=1e6)


class System:
  """The real memberships of a chief and two workers, whose heartbeats come when a test says so."""

  def __init__(self, count):
    self._count, self._of = count, local_server.record("protocols-done-%d" % next(_numbers), 60.0)
    self.chief = membership_lib.Membership(self._of)
    self.chief.run.begin_initialisation()
    self.chief.run.mark_initialised([])
    worker_service.cleanup_all(self.chief.cluster.control_task.address, [containers.CONTROL], 60.0)
    self._processes, self.workers = [0] * count, {}
    for w in range(count):
      self._begin(w)
    self.start = Model(count).start

  def _begin(self, w):
    of = self._of._replace(cluster=dataclasses.replace(self._of.cluster, task_index=w + 1))
    worker = membership_lib.Membership(of)
    worker.heartbeat = worker.watch.heartbeat = Heartbeat(
      local_server.table(self._of), of.cluster.task, "worker", of.container, 60.0)
    worker.run.id = self.chief.run_id
    worker.heartbeat.set(run=self.chief.run_id, state=MEMBER_TRAINING,
                         process="process-%d-%d" % (w, self._processes[w]))
    self.workers[w] = worker

  def perform(self, action):
    return getattr(self, "_" + action[0])(*action[1:])

  def _beat(self, w):
    worker = self.workers[w]
    worker.heartbeat.beat()
    if worker.heartbeat.get("state") != MEMBER_DONE:
      return TRAINING
    return LEFT if worker._is_heard() else REPORTED  # as in `Heartbeat.report`

  def _report(self, w):
    self.workers[w].heartbeat.set(state=MEMBER_DONE)
    return self._beat(w)

  def _read(self):
    self.chief.heartbeat.beat()

  def _lose(self):
    worker_service.cleanup_all(self.chief.cluster.control_task.address, [containers.CONTROL], 60.0)

  def _restart(self, w):
    self.workers[w].stop()
    self._processes[w] += 1
    self._begin(w)
    self.workers[w].heartbeat.beat()
    return self._report(w) if self.workers[w].was_done else TRAINING

  def _restart_chief(self):
    run_id = self.chief.run_id
    self.chief.stop()
    self.chief = membership_lib.Membership(self._of)
    self.chief.run.id = run_id
    self.chief.heartbeat.set(run=run_id)
    self.chief.heartbeat._table.put({  # its first heartbeat, before it has read any
      self.chief.heartbeat._name: self.chief.heartbeat._record(self.chief.heartbeat.own())})

  def check(self, state):
    members = [m for m in self.chief.members() if m.role == "worker"]
    found = {m.index - 1: (int(m.process.rpartition("-")[2]), m.has_ended) for m in members}
    assert len(found) == len(members), "a worker counts twice"
    assert [found.get(w, ()) for w in range(self._count)] == [own.read for own in state.workers]
    heard = self.chief.heartbeat.get("heard")
    assert heard.split() == ["/job:worker/task:%d=process-%d-%d" % (w + 1, w, one.read[0])
                             for w, one in enumerate(state.workers) if one.read and one.read[1]]

  def close(self):
    for one in [self.chief, *self.workers.values()]:
      one.stop()


def perform_reports(examples, length):
  perform(lambda: System(2), Model(2).steps, examples, length, often=["report", "beat", "read"])


def test_real_reports_do_what_the_model_does():
  perform_reports(6, 15)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_reports_do_what_the_model_does_for_long():
  perform_reports(20, 30)


def test_a_bug_of_the_real_reports_is_found(monkeypatch):
  def members(self, unused_run_id):  # without those whose heartbeats were lost with a ps
    return self.heartbeat.members()

  monkeypatch.setattr(member_watch.MemberWatch, "members", members)
  with pytest.raises(AssertionError):
    perform_reports(40, 15)


def test_reports_at_the_same_time_survive_the_loss_of_the_records():
  system = System(2)
  for one in [system.chief, *system.workers.values()]:
    one.heartbeat.hasten()
  threads = [threading.Thread(target=worker.report, args=(MEMBER_DONE, "", 60.0))
             for worker in system.workers.values()]
  for thread in threads:
    thread.start()
  for _ in range(3):
    harness.wait_until(lambda: len(local_server.table(system._of).read()) > 0)
    system._lose()
  harness.wait_until(lambda: system._read() or not any(one.is_alive() for one in threads))
  system._lose()
  system._read()
  done = [m.index for m in system.chief.members() if m.role == "worker" and m.has_ended]
  assert done == [1, 2]
  system.close()


# Done queues.


class Queues:
  """The real done queues of two sessions; the model has a set of workers for each."""

  start = frozenset()

  def __init__(self, graph_queues, sessions):
    self._queues, self._sessions = graph_queues, sessions
    self._queues.clear(sessions[0])

  def perform(self, action):
    name, session, *arguments = action
    if name == "wait":
      try:
        return self._queues.wait(self._sessions[session], 0, linger=0).missing
      except done_queues.DoneTimeout as error:
        return error.status.missing
    if name == "reset":
      worker_service.cleanup_all(
        local_server.record("x").cluster.task.address, ["protocols-done"], 60.0)
      return None
    return getattr(self._queues, name)(self._sessions[session], *arguments)

  def check(self, state):
    for session in self._sessions:
      assert set(self._queues.status(session).done) == state

  def close(self):
    pass


def steps_of_queues(state, workers=3):
  found = []
  for session in range(2):
    found += [Step(("report", session, w), state | {w}) for w in range(workers)]
    found.append(Step(("wait", session), state, sorted(set(range(workers)) - state)))
    found.append(Step(("reset", session), state))
    found.append(Step(("clear", session), frozenset()))
  return found


def perform_queues(examples, length):
  of = local_server.record("protocols-done")
  config = tf.ConfigProto(device_filters=[of.cluster.task.name])
  with tf.Graph().as_default() as graph:
    made = done_queues.DoneQueues(
      3, places=[of.cluster.task.name], container=of.container, run=str(next(_numbers)))
  sessions = [tf.Session(local_server.server().target, graph, config) for _ in range(2)]
  try:
    perform(lambda: Queues(made, sessions), steps_of_queues, examples, length, often=["report"])
  finally:
    for session in sessions:
      session.close()


def test_real_queues_do_what_the_model_does():
  assert explore(frozenset(), steps_of_queues, lambda state, step: None) == 8
  perform_queues(8, 15)


def test_a_bug_of_the_real_queues_is_found(monkeypatch):
  status = done_queues.DoneQueues._status

  def take(self, session, *args):  # who looks takes the reports, as a dequeue would
    found = status(self, session, *args)
    self.clear(session)
    return found

  monkeypatch.setattr(done_queues.DoneQueues, "_status", take)
  with pytest.raises(AssertionError):
    perform_queues(20, 15)
