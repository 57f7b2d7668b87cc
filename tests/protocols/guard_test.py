"""The protocol of guards: a model of guard.py and of resets, and real steps of two sessions."""
from __future__ import annotations

import collections
import concurrent.futures
from typing import NamedTuple, Optional

import pytest
import tensorflow.compat.v1 as tf

from tests.protocols.exploring import LIMIT, Step, explore, perform, transitions, wait_for
from tests.training import local_server
from tf1ps.compat import failed_assertions, worker_service
from tf1ps.state import guard

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

OK, WAITS, RESET, MISMATCH, FAILED = "ok", "waits", "was reset", "mismatch", "on purpose"
# The clients: the session of each, and the description that it gives.
SESSIONS, DESCRIPTIONS = (0, 1, 1), ("this", "this", "that")


class Client(NamedTuple):
  """A session, as far as one guard in its graph is concerned."""

  state: str = "new"  # of the table in guard.py
  waits: Optional[str] = None  # the kind of step that waits for the lock
  heard: Optional[str] = None  # the outcome of the last step that waited


class State(NamedTuple):
  clients: tuple = (Client(),) * len(SESSIONS)
  register: str = ""  # a description, guard.GONE, or nothing
  owner: Optional[int] = None  # the client that is in a step


class Model:
  """Steps, resets, and sessions that end."""

  def with_client(self, whole, c, **fields):
    return whole._replace(clients=tuple(
      one._replace(**fields) if i == c else one for i, one in enumerate(whole.clients)))

  def try_step(self, state, c, kind):
    """Begins a step that has the lock; returns the state, and why it fails or OK."""
    if state.clients[c].state == "reset":
      return state, RESET
    if state.clients[c].state == "new":
      if kind == "quick" or state.register == guard.GONE:
        return state, RESET
      if state.register not in ("", DESCRIPTIONS[c]):
        return state, MISMATCH
      state = self.with_client(state, c, state="member")._replace(register=DESCRIPTIONS[c])
    return state, FAILED if kind == "failing" else OK

  def step(self, state, c, kind):
    if state.owner is not None:
      return self.with_client(state, c, waits=kind), WAITS
    return self.try_step(state, c, kind)

  def hold(self, state, c):
    """A step that stays inside until `release`."""
    state, outcome = self.try_step(state, c, "step")
    return (state._replace(owner=c) if outcome == OK else state), outcome

  def release(self, state, unused_c=None):
    """The lock is free: the steps that wait go on."""
    state = state._replace(owner=None)
    for c, own in enumerate(state.clients):
      if own.waits:
        state, heard = self.try_step(state, c, own.waits)
        state = self.with_client(state, c, waits=None, heard=heard)
    return state, OK

  def kill(self, state, session):
    for c, one in enumerate(SESSIONS):
      if one == session:
        state = self.with_client(state, c, state="new", heard=None)
    if state.owner is not None and SESSIONS[state.owner] == session:
      state, _ = self.release(state)
    return state, OK

  def mark(self, state):
    return self.gone(state, guard.GONE), OK

  def clear(self, state):
    return self.gone(state, ""), OK

  def gone(self, state, register):
    for c, own in enumerate(state.clients):
      if own.state == "member":
        state = self.with_client(state, c, state="reset")
    return state._replace(register=register)

  def forget(self, state, c):
    return self.with_client(state, c, state="new"), OK

  def actions(self, state):
    for c, own in enumerate(state.clients):
      if state.owner == c:
        yield "release", c
      elif not own.waits:
        # Which of several would go on first is not known.
        if state.owner is None or not any(one.waits for one in state.clients):
          for kind in ("step", "quick", "failing"):
            yield "step", c, kind
        if state.owner is None:
          yield "hold", c
        yield "forget", c
    for session in set(SESSIONS):
      # TensorFlow frees the lock of another step when somebody gives up to wait for it.
      if not any(own.waits and SESSIONS[c] == session for c, own in enumerate(state.clients)):
        yield "kill", session
    yield ("mark",)
    yield ("clear",)

  def steps(self, state):
    return [Step(action, *getattr(self, action[0])(state, *action[1:]))
            for action in self.actions(state)]


class Checks:
  """What holds in every step; notes the transitions of the table."""

  def __init__(self):
    self.seen = collections.defaultdict(set)

  def __call__(self, state, step):
    after = step.state
    members = {DESCRIPTIONS[c] for c, own in enumerate(after.clients) if own.state == "member"}
    assert members <= {after.register}, "a member of something that is not there"
    if step.action[0] in ("step", "hold") and step.outcome == OK:
      assert after.clients[step.action[1]].state == "member", "a step on what is not its own"
    assert after.owner is None or step.action[0] != "kill" or (
      SESSIONS[after.owner] != step.action[1]), "the lock of a session that has ended"
    assert after.owner is not None or not any(own.waits for own in after.clients), (
      "it waits for a free lock")
    for c, (before, own) in enumerate(zip(state.clients, after.clients)):
      if before.state != own.state and step.action[0] != "kill":
        # What waited is a step, too.
        name = step.action[0] if step.action[0] in ("mark", "clear", "forget") else "step"
        self.seen[before.state].add((name, own.state))
      assert own.state != "reset" or before.state != "new", c


def shortened(state):
  return state._replace(clients=tuple(one._replace(heard=None) for one in state.clients))


def test_all_states_of_three_clients_and_the_transitions_of_the_table():
  checks = Checks()
  assert explore(State(), Model().steps, checks, shortened) == 320
  assert checks.seen == transitions(guard)


class KeepsTheLock(Model):
  """A session that ends inside a step keeps the lock."""

  def kill(self, state, session):
    return super().kill(state._replace(owner=None), session)[0]._replace(owner=state.owner), OK


class EntersWhatIsGone(Model):
  """A first step makes anew what a reset is about to clear."""

  def try_step(self, state, c, kind):
    if state.register == guard.GONE and state.clients[c].state == "new":
      return self.with_client(state, c, state="member"), OK
    return super().try_step(state, c, kind)


class TakesAnyDescription(Model):
  """Nobody compares descriptions."""

  def try_step(self, state, c, kind):
    if state.register == "this" and state.clients[c].state == "new":
      return self.with_client(state, c, state="member"), OK
    return super().try_step(state, c, kind)


@pytest.mark.parametrize("bug, said", [
  (KeepsTheLock, "the lock of a session that has ended"),
  (EntersWhatIsGone, "a member of something that is not there"),
  (TakesAnyDescription, "a member of something that is not there")])
def test_a_bug_of_the_model_is_found(bug, said):
  with pytest.raises(AssertionError, match=said):
    explore(State(), bug().steps, Checks(), shortened)


class Built:
  """The guards of all clients in one graph."""

  def __init__(self):
    of = local_server.record("protocols-guard", 20.0)
    self.task, self._target = of.cluster.task, local_server.server().target
    self.container = of.container
    self._config = tf.ConfigProto(device_filters=[self.task.name])
    self.graph, self.ops = tf.Graph(), collections.defaultdict(list)
    with self.graph.as_default(), tf.device(self.task.name):
      with tf.container(self.container):
        op = tf.queue.FIFOQueue(5, tf.int32, [], shared_name="g").queue_ref.op
      for c, description in enumerate(DESCRIPTIONS):
        self._build(c, guard.Guard(op, guard.Label.of(op, "thing", "g", {"is": description})))
    self.sessions = [self.new_session() for _ in set(SESSIONS)]

  def _build(self, c, made):
    with tf.container("protocols-guard.gates"):
      entered, goes_on = [tf.queue.FIFOQueue(5, tf.int32, [], shared_name="%s %d" % (name, c))
                          for name in ("entered", "goes on")]

    def one():
      return [tf.constant(1)]

    def fail():
      with tf.control_dependencies([tf.Assert(False, [FAILED])]):
        return one()

    def hold():
      with tf.control_dependencies([entered.enqueue(1)]):
        return [goes_on.dequeue()]

    for name, tensor in (("step", made.step(one)), ("quick", made.step(one, may_be_first=False)),
                         ("failing", made.step(fail)), ("hold", made.step(hold))):
      self.ops[name].append(tensor)
    self.ops["entered"].append(entered.size())
    self.ops["empty"].append(entered.dequeue())
    self.ops["release"].append(goes_on.enqueue(1))
    self.ops["forget"].append(made.forget())
    if not c:
      self.register = made.entries()[0]
      self.mark = guard.insert(made.ops.register, made.ops.key, tf.constant(guard.GONE))

  def new_session(self):
    return tf.Session(self._target, self.graph, self._config)


class System:
  """Real steps; a step that waits, or stays inside, has a thread."""

  start = State()

  def __init__(self, built):
    self._built, self._sessions = built, built.sessions
    self._threads = concurrent.futures.ThreadPoolExecutor(len(SESSIONS))
    self._runs, self._holds = {}, {}
    self._look = built.new_session()

  def perform(self, action):
    return getattr(self, "_" + action[0])(*action[1:]) or OK

  def _run(self, c, fetches):
    try:
      self._sessions[SESSIONS[c]].run(fetches)
      return OK
    except tf.errors.InvalidArgumentError as error:
      texts = failed_assertions(error)
      return next(what for text, what in (
        ("was reset", RESET), ("tf1ps mismatch: ", MISMATCH), (FAILED, FAILED))
        if any(text in one for one in texts))

  def _step(self, c, kind):
    if self._holds:
      self._runs[c] = self._threads.submit(self._run, c, self._built.ops[kind][c])
      return WAITS
    return self._run(c, self._built.ops[kind][c])

  def _hold(self, c):
    run = self._threads.submit(self._run, c, self._built.ops["hold"][c])
    wait_for(lambda: run.done() or self._look.run(self._built.ops["entered"][c]))
    if run.done():
      return run.result()
    self._look.run(self._built.ops["empty"][c])
    self._holds[c] = run
    return OK

  def _release(self, c):
    self._look.run(self._built.ops["release"][c])
    assert self._holds.pop(c).result(LIMIT) == OK

  def _kill(self, session):
    self._sessions[session].close()
    for c in [c for c in self._holds if SESSIONS[c] == session]:
      assert isinstance(self._holds.pop(c).exception(LIMIT), (tf.errors.OpError, RuntimeError))
    self._sessions[session] = self._built.new_session()

  def _mark(self):
    self._look.run(self._built.mark)

  def _clear(self):
    worker_service.cleanup_all(self._built.task.address, [self._built.container], LIMIT)

  def _forget(self, c):
    self._sessions[SESSIONS[c]].run(self._built.ops["forget"][c])

  def check(self, state):
    assert set(self._holds) == ({state.owner} - {None})
    for c, run in list(self._runs.items()):
      if state.clients[c].waits:
        assert not run.done(), "client %d does not wait" % c
      else:
        assert self._runs.pop(c).result(LIMIT) == state.clients[c].heard
    found = self._look.run(self._built.register).decode()
    if " " in found:
      (description,) = guard.descriptions([found.encode()])
      found = description["is"]
    assert found == state.register

  def close(self):
    for c in list(self._holds):
      self._release(c)
    concurrent.futures.wait(self._runs.values(), LIMIT)
    for session in set(SESSIONS):
      self._kill(session)
    self._clear()
    self._look.close()
    self._threads.shutdown()


def perform_steps(examples, length):
  built = Built()
  try:
    perform(lambda: System(built), Model().steps, examples, length, often=["step", "hold"])
  finally:
    for session in built.sessions:
      session.close()


def test_real_steps_do_what_the_model_does():
  perform_steps(10, 20)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_real_steps_do_what_the_model_does_for_long():
  perform_steps(40, 40)


def test_a_bug_of_the_real_steps_is_found(monkeypatch):
  check = guard.Guard._check
  monkeypatch.setattr(  # only a first step looks at the register
    guard.Guard, "_check",
    lambda self, may_be_first: check(self, True) if may_be_first else tf.no_op())
  with pytest.raises(AssertionError):
    perform_steps(40, 20)
