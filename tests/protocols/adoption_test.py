"""The protocol by which a chief adopts a run: a model of membership.py and takeover.py.

The chiefs of two jobs have a directory each, and one container. One worker trains with the one or
the other. A chief that starts finds the record of the run on the task that keeps the variables, the
status file in its directory, and heartbeats.
"""
from __future__ import annotations

import collections
import dataclasses
import itertools
from typing import NamedTuple, Optional

import pytest

from tests.protocols.exploring import Step, explore, perform, transitions
from tests.training import local_server
from tf1ps.compat import worker_service
from tf1ps.session import membership as membership_lib
from tf1ps.session import run_records, takeover
from tf1ps.state import MEMBER_FAILED, Heartbeat, RunFile, containers

SIGNATURE = [["w:0", "()", "float32", "", "resource"]]
BEGUN, INITIALISED, ENDED = "begun", "initialised", "ended"
RUNNING, FAILED = "running", "failed"
REFUSED = "refused"
ADOPTED, TRAINS = "adopted", "trains"


class File(NamedTuple):
  """A status file."""

  run: int
  state: str  # RUNNING, FAILED (the run may go on) or ENDED
  has_trained: bool = False


class Chief(NamedTuple):
  """A living chief."""

  run: Optional[int]
  state: str  # ADOPTED, BEGUN or TRAINS
  keeps: bool = False  # whether it has found the whole state of its run


class State(NamedTuple):
  record: Optional[tuple] = None  # (run, BEGUN, INITIALISED or ENDED)
  files: tuple = (None, None)  # of the two directories
  chiefs: tuple = (None, None)
  beat: Optional[tuple] = None  # the last heartbeat of a chief: (its number, run, whether it ended)
  worker: Optional[int] = None  # the run that the worker trains
  runs: int = 0  # the number of runs that have begun


def replaced(values, i, value):
  return tuple(value if j == i else one for j, one in enumerate(values))


class Model:
  """Starts and ends of chiefs and of the worker, lost records and files."""

  def start(self, state, c):
    """A chief starts, reads its directory, and adopts a run or none; another one beats on."""
    state, outcome = self.adopt(state, c)
    other = state.chiefs[1 - c]
    if other is not None and other.state == TRAINS:
      state = state._replace(beat=(1 - c, other.run, False))
    return state, outcome

  def adopt(self, state, c):
    file = state.files[c]
    goes_on = file is not None and file.state != ENDED
    known = file.run if goes_on else state.runs
    state = state._replace(
      runs=state.runs + (not goes_on),
      files=replaced(state.files, c, File(known, RUNNING, goes_on and file.has_trained)))
    run, phase = state.record or (None, None)
    is_mine = phase in (BEGUN, INITIALISED) and run == known
    if not is_mine and phase == INITIALISED:
      state = state._replace(beat=(c, None, False))
      is_refused, is_mine = self.take_over(state, c, run, file)
      if is_refused:
        return state, REFUSED
    chief = Chief(run if is_mine else None, ADOPTED, is_mine and phase == INITIALISED)
    return state._replace(chiefs=replaced(state.chiefs, c, chief)), (chief.run, chief.keeps)

  def take_over(self, state, c, run, file):
    """Returns whether the chief is refused, and whether it goes on with the run."""
    other = state.chiefs[1 - c]
    has_chief = other is not None and other.state == TRAINS and other.run == run
    if not has_chief and state.worker != run:
      return False, False
    has_own = file is not None and file.run != run and file.has_trained
    return has_chief or has_own, not has_chief and not has_own

  def begin(self, state, c):
    run = state.chiefs[c].run
    if run is None:
      run, state = state.runs, state._replace(runs=state.runs + 1)
    return state._replace(
      record=(run, BEGUN), chiefs=replaced(state.chiefs, c, Chief(run, BEGUN)),
      files=replaced(state.files, c, File(run, RUNNING))), None

  def mark(self, state, c):
    run = state.chiefs[c].run
    return state._replace(
      record=(run, INITIALISED), beat=(c, run, False),
      chiefs=replaced(state.chiefs, c, Chief(run, TRAINS)),
      files=replaced(state.files, c, File(run, RUNNING, True))), None

  def release(self, state, c):
    run = state.chiefs[c].run
    return state._replace(
      record=(run, ENDED), chiefs=replaced(state.chiefs, c, None),
      files=replaced(state.files, c, File(run, ENDED, True))), None

  def fail(self, state, c):
    """A chief reports that it has failed; its run may go on."""
    run = state.chiefs[c].run
    return state._replace(
      beat=(c, run, True), chiefs=replaced(state.chiefs, c, None),
      files=replaced(state.files, c, File(run, FAILED, True))), None

  def kill(self, state, c):
    return state._replace(chiefs=replaced(state.chiefs, c, None)), None

  def join(self, state):
    """The worker joins a run whose chief lives."""
    run, phase = state.record or (None, None)
    if phase == INITIALISED and state.beat and state.beat[1:] == (run, False):
      return state._replace(worker=run), run
    return state, None

  def leave(self, state):
    return state._replace(worker=None), None

  def lose(self, state):
    return state._replace(record=None, beat=None), None

  def remove(self, state, c):
    return state._replace(files=replaced(state.files, c, None)), None

  def actions(self, state):
    for c, own in enumerate(state.chiefs):
      other = state.chiefs[1 - c]
      if own is None:
        # That a task has one process is the word of cluster/holder.py.
        file = state.files[c]
        if other is None or other.state == TRAINS and (file is None or file.run != other.run):
          yield "start", c
        if state.files[c] is not None:
          yield "remove", c
        continue
      yield "kill", c
      if own.state == ADOPTED:
        yield "begin", c
      if own.state == BEGUN or own.keeps:
        yield "mark", c
      if own.state == TRAINS and (other is None or other.state == TRAINS):
        yield "release", c
        yield "fail", c
    if any(one is not None and one.state != TRAINS for one in state.chiefs):
      return  # what begins, begins at once
    if state.worker is None:
      yield ("join",)
    else:
      yield ("leave",)
    if not any(state.chiefs):
      yield ("lose",)

  def steps(self, state):
    return [Step(action, *getattr(self, action[0])(state, *action[1:]))
            for action in self.actions(state)]


def shortened(state):
  """Numbers the runs in the order in which the state names them."""
  numbers = {}

  def number(run):
    return None if run is None else numbers.setdefault(run, len(numbers))

  short = State(
    record=state.record and (number(state.record[0]), state.record[1]),
    files=tuple(one and one._replace(run=number(one.run)) for one in state.files),
    chiefs=tuple(one and one._replace(run=number(one.run)) for one in state.chiefs),
    beat=state.beat and (state.beat[0], number(state.beat[1]), state.beat[2]),
    worker=number(state.worker))
  return short._replace(runs=len(numbers))


class Checks:
  """What holds in every step; notes the transitions of the table."""

  def __init__(self):
    self.seen = collections.defaultdict(set)

  def __call__(self, state, step):
    after, name = step.state, step.action[0]
    before_run, before = state.record or (None, "none")
    _, phase = after.record or (None, "none")
    if phase != before or name == "begin":
      self.seen[before].add((name, phase))
    runs = [one.run for one in after.chiefs if one is not None and one.run is not None]
    assert len(set(runs)) == len(runs), "a run has two chiefs"
    if name == "begin":
      own, other = [state.chiefs[c] for c in (step.action[1], 1 - step.action[1])]
      assert before != INITIALISED or own.run == before_run or state.worker != before_run, (
        "the state under a living worker is cleared")
      assert other is None or other.state != TRAINS or other.run != before_run, (
        "the state under a living chief is cleared")
    if name == "start" and step.outcome not in (REFUSED, (None, False)):
      assert before in (BEGUN, INITIALISED) and step.outcome == (before_run, before == INITIALISED)
    if name == "start" and state.files[step.action[1]] is not None and before != ENDED:
      file = state.files[step.action[1]]
      if file.run == before_run and file.state != ENDED:
        assert step.outcome == (before_run, before == INITIALISED), "a chief does not find its run"


def test_all_states_of_two_chiefs_and_the_transitions_of_the_table():
  checks = Checks()
  assert explore(State(), Model().steps, checks, shortened) == 3812
  assert checks.seen == transitions(takeover)


class TakesAnyRun(Model):
  """A chief takes over a run, whoever is its chief."""

  def take_over(self, state, c, run, file):
    lives = state.worker == run
    return False, lives


class TakesNothingOver(Model):
  """A chief that does not know a run takes it for an old one."""

  def take_over(self, state, c, run, file):
    return False, False


class ForgetsFailures(Model):
  """A run whose chief has failed does not go on."""

  def adopt(self, state, c):
    file = state.files[c]
    if file is not None and file.state == FAILED:
      state = state._replace(files=replaced(state.files, c, None))
    return super().adopt(state, c)


@pytest.mark.parametrize("bug, said", [
  (TakesAnyRun, "a run has two chiefs|the state under a living chief is cleared"),
  (TakesNothingOver, "the state under a living (worker|chief) is cleared"),
  (ForgetsFailures, "a chief does not find its run")])
def test_a_bug_of_the_model_is_found(bug, said):
  with pytest.raises(AssertionError, match=said):
    explore(State(), bug().steps, Checks(), shortened)


_numbers = itertools.count()


class System:
  """The real memberships of two chiefs and a worker; their heartbeats come when a test says so."""

  start = State()

  def __init__(self, folder):
    self._number = next(_numbers)
    self._of = local_server.record("protocols-adoption-%d" % self._number, 60.0)
    self._folders = [folder / ("%d-%d" % (self._number, c)) for c in range(2)]
    self._chiefs, self._trains = [None, None], set()
    self._runs = {}  # the number in the model, by id
    worker = self._of._replace(cluster=dataclasses.replace(self._of.cluster, task_index=1))
    self._worker = membership_lib.Membership(worker)
    self._worker._records = run_records.RunRecords(self._of)  # there is no server of the worker
    self._worker.heartbeat = self._worker.watch.heartbeat = Heartbeat(
      local_server.table(self._of), worker.cluster.task, "worker", worker.container, 60.0)
    self._worker.heartbeat.set(process="the worker")
    self._is_there = False  # the worker
    self._lose()  # heartbeats of other jobs

  def perform(self, action):
    return getattr(self, "_" + action[0])(*action[1:])

  def _beat_all(self):
    """The heartbeats that come while a chief looks; those of workers come first."""
    if self._is_there:
      self._worker.heartbeat.beat()
    for c in self._trains:
      self._chiefs[c].heartbeat.beat()

  def _start(self, c):
    chief = membership_lib.Membership(self._of, str(self._folders[c]))
    chief.heartbeat.set(process="chief %d" % c)
    self._beat_all()
    try:
      chief.run.adopt(SIGNATURE, self._beat_all)
    except takeover.LivingRunError:
      chief.stop()
      return REFUSED
    finally:
      self._beat_all()
    self._chiefs[c] = chief
    return self._runs.get(chief.run_id), bool(chief.run._keeps)

  def _begin(self, c):
    self._chiefs[c].run.begin_initialisation()

  def _mark(self, c):
    self._chiefs[c].heartbeat.set(global_step=1)
    self._chiefs[c].run.mark_initialised(SIGNATURE)
    self._trains.add(c)

  def _end(self, c):
    self._chiefs[c].stop()
    self._chiefs[c] = None
    self._trains.discard(c)

  def _release(self, c):
    self._chiefs[c].release()
    self._end(c)

  def _fail(self, c):
    self._chiefs[c].report(MEMBER_FAILED, "on purpose")
    self._end(c)

  _kill = _end

  def _join(self):
    found = self._worker.find_run()
    if found is None:
      return None
    self._worker.heartbeat.set(reason="")
    self._worker.join(found)
    self._is_there = True
    return self._runs[found.id]

  def _leave(self):
    self._worker.heartbeat.set(state=MEMBER_FAILED)
    self._worker.heartbeat.beat()
    self._is_there = False

  def _lose(self):
    worker_service.cleanup_all(self._of.cluster.control_task.address, [containers.CONTROL], 60.0)

  def _remove(self, c):
    (self._folders[c] / RunFile.NAME).unlink()

  def check(self, state):
    files = [RunFile(str(folder)).read() for folder in self._folders]
    (record,) = run_records.RunRecords(self._of).runs()
    for file, one in zip(files, state.files):
      if file is not None and one is not None:
        self._runs.setdefault(file.run, one.run)
    assert [file and (self._runs[file.run], file.state, file.global_step >= 0)
            for file in files] == [one and tuple(one) for one in state.files]
    phase = record and (ENDED if record.ended else INITIALISED if record.initialised else BEGUN)
    assert (record and (self._runs[record.id], phase)) == state.record
    for chief, one in zip(self._chiefs, state.chiefs):
      if one is not None and one.state == TRAINS:
        assert self._runs[chief.run_id] == one.run

  def close(self):
    for one in [self._worker, *filter(None, self._chiefs)]:
      one.stop()


class Clock:
  """The time of a chief that looks for heartbeats: only its pauses take some."""

  now = 0.0

  def monotonic(self):
    return self.now

  def sleep(self, seconds):
    self.now += seconds


@pytest.fixture
def perform_adoptions(tmp_path, set_timing, monkeypatch):
  """Performs the steps, with as many looks at the heartbeats however busy the machine is."""
  set_timing(takeover, heartbeat_interval=1.0, fast_poll_interval=1.0, alive_within=60.0)
  monkeypatch.setattr(takeover, "time", Clock())
  return lambda examples, length: perform(
    lambda: System(tmp_path), Model().steps, examples, length,
    often=["start", "begin", "mark", "join"])


def test_real_chiefs_do_what_the_model_does(perform_adoptions):
  perform_adoptions(4, 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_chiefs_do_what_the_model_does_for_long(perform_adoptions):
  perform_adoptions(15, 40)


def test_a_bug_of_the_real_chiefs_is_found(perform_adoptions, monkeypatch):
  monkeypatch.setattr(takeover, "check", lambda *args: None)  # every living run is taken over
  with pytest.raises(AssertionError):
    perform_adoptions(60, 20)
