"""The protocol of leases: a model of lease_table.py and of its workers, and the real table."""
from __future__ import annotations

import collections
import json
import threading
from typing import NamedTuple, Optional

import pytest

from tests.protocols.exploring import Step, explore, perform, transitions
from tests.training import local_server
from tf1ps.pipeline import lease_table, leases
from tf1ps.state import ControlError

NEW, BACK, DONE = "new", "back", "done"
STALE, LOST = "stale session", "the answer was lost"


class Table(NamedTuple):
  """The table: a lease is NEW, BACK, DONE, or out to the worker with a number."""

  leases: tuple
  noted: tuple  # per lease: the examples of it that its worker has reported
  again: int = 0
  delivered: tuple = ()  # how often each lease was done, in the life of this table


class Worker(NamedTuple):
  """The session of a worker."""

  is_valid: bool = False  # it belongs to the present era
  held: tuple = ()
  trained: tuple = ()  # the held leases of which an example was trained on
  done: tuple = ()  # not yet reported
  taken: tuple = ()  # the held leases that the chief took back, as the worker seemed lost


class State(NamedTuple):
  table: Table
  workers: tuple
  saved: Optional[Table] = None


class Model:
  """The steps of workers and of the chief; each is one change of the table."""

  def __init__(self, workers, ranges):
    self.new = Table((NEW,) * ranges, (0,) * ranges, 0, (0,) * ranges)
    self.start = State(self.new, (Worker(),) * workers)

  def with_worker(self, state, w, **fields):
    return state._replace(workers=tuple(
      one._replace(**fields) if i == w else one for i, one in enumerate(state.workers)))

  def returned(self, table, w, held=()):
    """The table without leases that are out to a worker, but for those that it holds."""
    back = [i for i, one in enumerate(table.leases) if one == w and i not in held]
    return table._replace(
      leases=tuple(BACK if i in back else one for i, one in enumerate(table.leases)),
      noted=tuple(0 if i in back else one for i, one in enumerate(table.noted)),
      again=table.again + sum(table.noted[i] for i in back))

  def ended(self, table, w, done):
    ends = [i for i in done if table.leases[i] == w]
    return table._replace(
      leases=tuple(DONE if i in ends else one for i, one in enumerate(table.leases)),
      noted=tuple(0 if i in ends else one for i, one in enumerate(table.noted)),
      delivered=tuple(one + (i in ends) for i, one in enumerate(table.delivered)))

  def granted(self, table, w, held):
    """Returns the table and the lease, or None."""
    free = [i for i, one in enumerate(table.leases) if one == BACK and i not in held]
    free += [i for i, one in enumerate(table.leases) if one == NEW]
    if not free:
      return table, None
    return table._replace(leases=tuple(
      w if i == free[0] else one for i, one in enumerate(table.leases))), free[0]

  def attach(self, state, w):
    state = self.with_worker(state, w, is_valid=True, held=(), trained=(), done=(), taken=())
    return state._replace(table=self.returned(state.table, w)), None

  def exchange(self, state, w, is_wanted, is_lost):
    own = state.workers[w]
    if not own.is_valid:
      return state, STALE
    table = self.ended(state.table, w, own.done)
    table = table._replace(noted=tuple(
      1 if i in own.trained and table.leases[i] == w else one
      for i, one in enumerate(table.noted)))
    table, lease = self.returned(table, w, own.held), None
    if is_wanted:
      table, lease = self.granted(table, w, own.held)
    state = state._replace(table=table)
    if is_lost:
      return state, LOST
    held = own.held if lease is None else (*own.held, lease)
    return self.with_worker(state, w, done=(), held=held), lease

  def train(self, state, w, lease):
    trained = tuple(sorted({*state.workers[w].trained, lease}))
    return self.with_worker(state, w, trained=trained), None

  def finish(self, state, w, lease):
    own = state.workers[w]
    return self.with_worker(
      state, w, held=tuple(one for one in own.held if one != lease), done=(*own.done, lease),
      trained=tuple(one for one in own.trained if one != lease),
      taken=tuple(one for one in own.taken if one != lease)), None

  def lose(self, state, w):
    """The chief takes a worker for lost, which may be right."""
    own = state.workers[w]
    taken = {i for i in own.held if state.table.leases[i] == w}
    state = self.with_worker(state, w, taken=tuple(sorted({*own.taken, *taken})))
    return state._replace(table=self.returned(state.table, w)), None

  def save(self, state):
    return state._replace(saved=state.table), None

  def begin(self, state, is_restored):
    table = state.saved if is_restored else self.new
    for w in range(len(state.workers)):
      table = self.returned(table, w)
    state = state._replace(table=table)
    for w in range(len(state.workers)):
      state = self.with_worker(state, w, is_valid=False)
    return state, None

  def actions(self, state):
    for w, own in enumerate(state.workers):
      yield "attach", w
      yield "lose", w
      if own.is_valid or own.held:
        for is_wanted in (False, True):
          for is_lost in (False, True) if own.is_valid else (False,):
            yield "exchange", w, is_wanted, is_lost
      for lease in own.held:
        yield "train", w, lease
        yield "finish", w, lease
    yield ("save",)
    yield "begin", False
    if state.saved is not None:
      yield "begin", True

  def steps(self, state):
    for action in self.actions(state):
      after, outcome = getattr(self, action[0])(state, *action[1:])
      yield Step(action, after, outcome)


def shortened(state):
  """Leaves out the sum of examples, and the order of the workers."""
  saved = state.saved and state.saved._replace(again=0)
  both = [state._replace(table=state.table._replace(again=0), saved=saved)]
  if len(state.workers) == 2:
    def swapped(table):
      return table and table._replace(leases=tuple(
        1 - one if isinstance(one, int) else one for one in table.leases))
    both.append(both[0]._replace(table=swapped(both[0].table), saved=swapped(saved),
                                 workers=both[0].workers[::-1]))
  return min(both, key=lambda one: (one.workers, list(map(str, one.table.leases))))


class Checks:
  """What holds in every step; notes the transitions of the table."""

  OPERATIONS = {(NEW, "out"): "grant", (BACK, "out"): "grant", ("out", DONE): "done",
                ("out", BACK): "return_leases"}

  def __init__(self):
    self.seen = collections.defaultdict(set)

  def __call__(self, state, step):
    before, after = state.table, step.state.table
    if step.action[0] != "begin":
      self._check_leases(before, after, step)
    for i, count in enumerate(after.delivered):
      assert count == (after.leases[i] == DONE), "a range was delivered %d times" % count
    for w, own in enumerate(step.state.workers):
      assert len(set(own.held)) == len(own.held), "a worker reads a range twice at once"
      for lease in own.held if own.is_valid else ():
        assert after.leases[lease] == w or lease in own.taken, "it lost a lease unawares"
      for lease in own.held:
        for other in step.state.workers[:w]:
          if own.is_valid and other.is_valid and lease in other.held:
            assert lease in own.taken + other.taken, "two workers have a lease"

  def _check_leases(self, before, after, step):
    counted = 0
    for i, (one, then) in enumerate(zip(before.leases, after.leases)):
      if one == then:
        continue
      assert not (isinstance(one, int) and isinstance(then, int)), "it changed hands at once"
      both = tuple("out" if isinstance(it, int) else it for it in (one, then))
      # A step may return a lease, and grant it.
      assert both in self.OPERATIONS, "a lease went from %s to %s" % both
      self.seen[both[0]].add((self.OPERATIONS[both], both[1]))
      if both == ("out", BACK):
        counted += before.noted[i]
    assert after.again >= before.again + counted, "examples that are trained twice do not count"


def without(model, *names):
  """The steps of a model but for some actions."""
  return lambda state: (step for step in model.steps(state) if step.action[0] not in names)


# (the number of ranges, the actions that are left out): the number of states
EXPLORED = {(1, ()): 1254, (2, ("train", "save", "begin")): 956}


def test_all_states_of_two_workers_and_the_transitions_of_the_table():
  checks, counts = Checks(), {}
  for ranges, left_out in EXPLORED:
    model = Model(2, ranges)
    counts[ranges, left_out] = explore(model.start, without(model, *left_out), checks, shortened)
  assert counts == EXPLORED
  found = transitions(lease_table)
  assert {state: them for state, them in found.items() if them} == checks.seen


@pytest.mark.slow
def test_all_states_of_two_ranges():
  model = Model(2, 2)
  assert explore(model.start, without(model, "save"), Checks(), shortened) == 13467


class GrantsWhatIsHeld(Model):
  """A worker that was taken for lost gets the lease that it still holds."""

  def granted(self, table, w, held):
    return super().granted(table, w, ())


class TakesAnyWord(Model):
  """A worker ends a lease that another one has."""

  def ended(self, table, w, done):
    for i in done:
      table = super().ended(table, table.leases[i], [i])
    return table


class ForgetsExamples(Model):
  """The examples of returned leases do not count."""

  def returned(self, table, w, held=()):
    return super().returned(table, w, held)._replace(again=table.again)


@pytest.mark.parametrize("bug, said", [
  (GrantsWhatIsHeld, "a worker reads a range twice at once"),
  (TakesAnyWord, "a lease went from back to done"),
  (ForgetsExamples, "examples that are trained twice do not count")])
def test_a_bug_of_the_model_is_found(bug, said):
  model = bug(2, 2)
  with pytest.raises(AssertionError, match=said):
    explore(model.start, without(model, "save"), Checks(), shortened)


class System:
  """The real table on a server, and the real leases of two workers."""

  def __init__(self, of, count, ranges):
    self._tables = [lease_table.LeaseTable(local_server.table(of), of.container, "d", 1)
                    for _ in range(count + 1)]
    self._chief, self._ranges = self._tables[-1], ranges
    self._chief.begin(ranges)
    self._workers = [leases.WorkerLeases(w) for w in range(count)]
    self._saved, self._is_lost = None, False
    self.start = Model(count, ranges).start

  def perform(self, action):
    return getattr(self, "_" + action[0])(*action[1:])

  def _change(self, w):
    def change(function):
      result = self._tables[w].change(function)
      if self._is_lost:
        raise ControlError("no answer")
      return result
    return change

  def _attach(self, w):
    self._tables[w].attach()
    worker = self._workers[w]
    worker._change = self._change(w)  # as in `begin_session`, without the thread
    worker._start_pass()
    worker._report()

  def _exchange(self, w, is_wanted, is_lost):
    worker, self._is_lost = self._workers[w], is_lost
    before = set(worker._held.values())
    worker._is_wanted = is_wanted
    try:
      worker._report()
    except lease_table.StaleSessionError:
      return STALE
    except ControlError:
      return LOST
    finally:
      self._is_lost = False
    return next(iter(set(worker._held.values()) - before), None)

  def _train(self, w, lease):
    if not self._workers[w].trained_of(lease):  # of each range, one example is trained on
      self._workers[w].note_trained(lease, 1, is_done=False)

  def _finish(self, w, lease):
    self._workers[w].note_trained(lease, 1, is_done=True)

  def _lose(self, w):
    self._chief.change(lambda state: state.return_leases(w))

  def _save(self):
    self._saved = self._chief.to_json()

  def _begin(self, is_restored):
    self._chief.begin(self._ranges, saved=self._saved if is_restored else None)

  def check(self, state):
    value = json.loads(self._chief.to_json())
    table, found = state.table, dict.fromkeys(range(self._ranges), DONE)
    found.update(dict.fromkeys(range(value["next"], self._ranges), NEW))
    found.update(dict.fromkeys(value["back"], BACK))
    found.update({int(lease): owner for lease, (owner, _) in value["out"].items()})
    assert [found[i] for i in range(self._ranges)] == list(table.leases)
    assert len(value["back"]) + len(value["out"]) == len({*value["back"], *map(int, value["out"])})
    noted = {int(lease): trained for lease, (_, trained) in value["out"].items()}
    assert [noted.get(i, 0) for i in range(self._ranges)] == list(table.noted)
    assert value["again"] == table.again
    for worker, own in zip(self._workers, state.workers):
      assert worker.held() == list(own.held)

  def close(self):
    for table in self._tables:
      table.close()


def perform_leases(examples, length):
  of = local_server.record("protocols-leases", 20.0)
  perform(lambda: System(of, 2, 3), lambda state: list(Model(2, 3).steps(state)), examples, length,
          often=["exchange", "lose"])


def test_the_real_table_does_what_the_model_does():
  perform_leases(6, 25)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_real_table_does_what_the_model_does_for_long():
  perform_leases(30, 50)


def test_a_bug_of_the_real_table_is_found(monkeypatch):
  grant = lease_table.LeaseState.grant
  monkeypatch.setattr(lease_table.LeaseState, "grant",
                      lambda self, owner, epoch=None, held=(): grant(self, owner, epoch))
  with pytest.raises(AssertionError):
    perform_leases(60, 25)


def deliver(of, w, epochs, failures, delivered):
  """A worker that takes leases, gives up some of them, and notes those that are done."""
  table = lease_table.LeaseTable(local_server.table(of), of.container, "d", epochs)
  try:
    table.attach()
    while True:
      lease, is_done = table.change(lambda state: (state.grant(w), state.is_done))
      if is_done:
        return
      if lease is None:
        continue  # another worker may return one
      if lease in failures and failures.pop(lease, None):
        assert table.change(lambda state: state.return_leases(w)) == [lease]
        continue
      table.change(lambda state, lease=lease: state.done(w, [lease]))
      delivered.append(lease)
  finally:
    table.close()


def test_workers_at_the_same_time_deliver_each_range_once():
  of, ranges, epochs = local_server.record("protocols-leases-together", 20.0), 6, 2
  chief = lease_table.LeaseTable(local_server.table(of), of.container, "d", epochs)
  chief.begin(ranges)
  every = [epoch * lease_table.EPOCH + i for epoch in range(epochs) for i in range(ranges)]
  delivered, failures = [], dict.fromkeys(every[::3], True)
  threads = [threading.Thread(target=deliver, args=(of, w, epochs, failures, delivered))
             for w in range(3)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join(60.0)
  assert sorted(delivered) == every and not failures
  assert chief.change(lambda state: state.is_done)
  chief.close()
