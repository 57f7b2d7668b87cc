"""The protocol of synchronous rounds: a model of rounds.py, all its states, and the real rounds.

The model has the columns of `RoundState`, and of each replica what the state does not hold: the
token in its queue, whether its run waits for one, whether its session has made its first step.
"""
from __future__ import annotations

import collections
import concurrent.futures
import functools
import math
from typing import NamedTuple

import pytest
import tensorflow.compat.v1 as tf

from tests.protocols.exploring import LIMIT, Step, explore, perform, transitions, wait_for
from tests.training import local_server
from tf1ps.compat import failed_assertions
from tf1ps.replication import round_errors, rounds

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

UPDATE, NONE, END = "update", "no update", "end"  # tokens
PARTIAL, NOT_JOINED, RESET, INTERRUPTED = "partial update", "not joined", "reset", "interrupted"


class Replica(NamedTuple):
  """A replica: its columns, then what only its session and its queue know."""

  active: int = 0
  left: int = 0
  padding: int = 0
  arrived: int = 0
  computes_for: int = 0
  taken: int = 0
  stale: int = 0
  went_through: int = 0
  token: str = ""  # in its queue
  waits: bool = False  # its run waits for a token
  has_session: bool = False  # its session has made its first step
  fate: str = ""  # of the gradient of a run that waits: UPDATE, once it is in one
  heard: str = ""  # the token of its last run that has waited


class State(NamedTuple):
  """The state of all."""

  replicas: tuple
  round: int = 0
  ended: int = 0
  updating: int = 0
  update_step: int = 0
  joins: int = 0
  updates: int = 0  # of the whole history
  last: tuple = ()  # the replicas whose gradients are in the last update


def state_of(replica):
  """The state of a replica by the table's columns."""
  if not replica.left:
    return ("waiting" if replica.arrived else "computing") if replica.active else "expected"
  return "padding" if replica.padding else "left"


class Model:
  """The operations of rounds.py, each of which is indivisible."""

  def __init__(self, replicas, aggregate, on_uneven):
    self.rules = rounds.RoundRules(replicas, aggregate, on_uneven)
    self.start = State((Replica(),) * replicas)

  def with_one(self, state, i, **fields):
    replicas = state.replicas
    return state._replace(
      replicas=(*replicas[:i], replicas[i]._replace(**fields), *replicas[i + 1:]))

  def with_all(self, state, change):
    changes = [change(one) for one in state.replicas]
    if not any(changes):
      return state
    return state._replace(replicas=tuple(
      one._replace(**fields) if fields else one for one, fields in zip(state.replicas, changes)))

  def awaited(self, state):
    """The number of gradients, or of replicas that count as arrived, that the round waits for."""
    if not self.rules.policy.shrinks:
      return self.rules.aggregate
    return min(self.rules.aggregate, sum(1 - one.left for one in state.replicas))

  def is_complete(self, state):
    arrived = sum(one.arrived for one in state.replicas)
    there = sum(max(one.arrived, one.padding) for one in state.replicas)
    return there >= self.awaited(state) and arrived > 0 and not state.ended

  def finish(self, state, interrupted):
    """Returns the state, and whether an update was interrupted."""
    if not self.is_complete(state):
      return state, False
    if interrupted:
      return state._replace(updating=1), True
    there = tuple(i for i, one in enumerate(state.replicas) if one.arrived)
    state = state._replace(round=state.round + 1, updates=state.updates + 1, last=there,
                           update_step=state.updates + 1)
    return self.with_all(state, lambda one: dict(
      computes_for=state.round, taken=one.taken + 1, arrived=0, token=UPDATE,
      fate=UPDATE if one.waits else "") if one.arrived else {}), False

  def ended(self, state):
    return self.with_all(state._replace(ended=1), lambda one: dict(
      arrived=0, stale=one.stale + 1, token=END) if one.arrived else {})

  def is_other_job(self, state, may_begin, is_chief):
    is_new = may_begin and all(one.left for one in state.replicas)
    return is_new or bool(is_chief and may_begin and state.ended)

  def join(self, state, i, may_begin, is_chief):
    state = self.with_one(state, i, has_session=True)
    if state.updating:
      return state, PARTIAL
    is_other_job = self.is_other_job(state, may_begin, is_chief)
    if is_other_job:
      state = self.with_all(state, lambda one: dict(left=0, padding=0, arrived=0, went_through=0))
      state = state._replace(ended=0)
    state = self.with_one(state, i, active=1, left=0, padding=0, arrived=0,
                          computes_for=state.round, token="")
    return state._replace(joins=state.joins + 1), None

  def clear(self, state, i):
    state = self.with_one(state, i, has_session=True)
    state = self.with_all(state, lambda one: dict(
      active=0, left=0, padding=0, arrived=0, computes_for=0, taken=0, stale=0, went_through=0))
    return state._replace(round=state.round + 1, ended=0, updating=0, update_step=0, joins=0), None

  def arrive(self, state, i, interrupted):
    own, state = state.replicas[i], self.with_one(state, i, heard="")
    if state.updating:
      return state, PARTIAL
    if not own.active:
      return state, NOT_JOINED
    state = self.with_one(state, i, token="")
    if state.ended:
      return state, END
    if self.is_late(own, state):
      return self.with_one(state, i, stale=own.stale + 1, computes_for=state.round), NONE
    state = self.with_one(state, i, arrived=1, waits=True, fate="")
    state, was_interrupted = self.finish(state, interrupted)
    if was_interrupted:
      return self.with_one(state, i, waits=False), INTERRUPTED
    return state, None

  def is_late(self, own, state):
    return own.computes_for < state.round

  def leave(self, state, i, interrupted):
    state = self.with_one(state, i, active=0, left=1, arrived=0, padding=1)
    state, was_interrupted = self.finish(state, interrupted)
    return state, INTERRUPTED if was_interrupted else None

  def drop(self, state, i, other, interrupted):
    state = self.with_one(state, other, active=0, left=1, arrived=0, padding=0)
    state, was_interrupted = self.finish(state, interrupted)
    return state, INTERRUPTED if was_interrupted else None

  def end(self, state, i):
    return self.with_one(self.ended(state), i, active=0, left=1), None

  def finish_pass(self, state, i):
    if not state.replicas[i].active:
      return state, NOT_JOINED
    state = self.with_one(state, i, went_through=1)
    if all(one.went_through for one in state.replicas):
      state = self.ended(state)
    return state, bool(state.ended)

  def resend(self, state, i):
    own = state.replicas[i]
    if not own.arrived and not own.token:
      state = self.with_one(state, i, token=END if state.ended else NONE)
    return state, None

  def take(self, state, i):
    """A run that waits gets its token."""
    token = state.replicas[i].token
    return self.with_one(state, i, token="", waits=False, heard=token), token

  def kill(self, state, i):
    """The session of a replica ends, and the run that waits in it; the token stays."""
    return self.with_one(state, i, waits=False, has_session=False), None

  def actions(self, state):
    """Yields the actions that are possible."""
    policy = self.rules.policy
    for i, own in enumerate(state.replicas):
      if own.waits and own.token:
        yield "take", i
      if own.waits or own.has_session:
        yield "kill", i
      if own.has_session:
        yield "resend", i
      if own.waits:
        continue
      for may_begin in (0, 1):
        yield "join", i, may_begin, i == 0
      if i == 0:
        yield "clear", i
      if not own.has_session:
        continue
      for interrupted in (False, True):
        yield "arrive", i, interrupted
        if policy.pads:
          yield "leave", i, interrupted
        if policy.shrinks:
          for other in range(len(state.replicas)):
            yield "drop", i, other, interrupted
      if policy.ends_all or i == 0:
        yield "end", i
      if policy.repeats:
        yield "finish_pass", i

  def step(self, state, action):
    name = action[0]
    if state.updating and name in ("leave", "drop", "end", "finish_pass", "resend"):
      return Step(action, state, PARTIAL)
    after, outcome = getattr(self, name)(state, *action[1:])
    if name in ("arrive", "leave", "drop") and action[-1] and outcome != INTERRUPTED:
      return None  # the same as without
    return Step(action, after, outcome)

  def steps(self, state):
    found = [step for step in map(lambda action: self.step(state, action), self.actions(state))
             if step is not None]
    # A run that is refused may have taken its old token away.
    return found + [step._replace(state=self.with_one(step.state, step.action[1], token=""))
                    for step in found if self.is_refused_with_token(step)]

  def is_refused_with_token(self, step):
    return (step.action[0] == "arrive" and step.outcome in (PARTIAL, NOT_JOINED)
            and step.state.replicas[step.action[1]].token)

  def eager_steps(self, state):
    """The steps on real queues, where a run that waits for a token takes it at once."""
    return [Step(action, self.taken(step.state), step.outcome)
            for action in self.actions(state) for step in [self.step(state, action)]
            if step is not None and not self.is_refused_with_token(step)]

  def taken(self, state):
    for i, own in enumerate(state.replicas):
      if own.waits and own.token:
        state, _ = self.take(state, i)
    return state


def shortened(state):
  """Leaves out the numbers of rounds, and the order of the replicas that are no chief."""
  chief, *others = [_shortened(one, int(one.computes_for == state.round)) for one in state.replicas]
  return State((chief, *sorted(others)), round=1, ended=state.ended, updating=state.updating)


@functools.lru_cache(maxsize=None)
def _shortened(replica, computes):
  return replica._replace(computes_for=computes, taken=0, stale=0, heard="")


class Checks:
  """What holds in every step of the model; notes the transitions of the two tables."""

  def __init__(self, model):
    self.model = model
    self.rounds, self.replicas = collections.defaultdict(set), collections.defaultdict(set)

  def __call__(self, state, step):
    full = step.state
    self._note(state, full, step)
    if full.updates:
      self._check_update(state, full, step)
    for own in full.replicas:
      assert not own.arrived or own.computes_for == full.round, "a late gradient has arrived"
      assert not (own.arrived and own.left), "a replica that left has arrived"
      assert not own.padding or own.left
    if step.action[0] == "take":
      own = state.replicas[step.action[1]]
      if own.token == UPDATE:
        assert own.fate == UPDATE, "it hears of an update without its gradient"
      else:
        assert own.fate != UPDATE, "it does not hear that its gradient is in an update"
    for own in full.replicas:
      if own.waits and not own.token and own.arrived and not full.updating:
        assert not full.ended, "it waits after the end"
        # Left, a replica may be back in another job; a round waits for it unless it shrinks.
        awaited = [one for one in full.replicas if state_of(one) in ("expected", "computing")]
        assert awaited and not self.model.is_complete(full), "it waits, and no one is awaited"

  def _check_update(self, state, full, step):
    rules = self.model.rules
    assert not state.ended and not state.updating
    number = len(full.last)
    if rules.policy.pads:
      assert number == max(1, rules.aggregate - sum(one.padding for one in full.replicas))
    elif rules.policy.shrinks:
      assert number == min(rules.aggregate, sum(1 - one.left for one in full.replicas))
    else:
      assert number == rules.aggregate
    for i in full.last:
      before = state.replicas[i]
      assert before.computes_for == state.round, "a late gradient is in an update"
      assert before.arrived or step.action[:2] == ("arrive", i), "a gradient that did not arrive"
      assert full.replicas[i].computes_for == full.round and not full.replicas[i].arrived

  def _note(self, state, full, step):
    def of(one):
      return "updating" if one.updating else "ended" if one.ended else "collecting"

    if of(state) != of(full):
      self.rounds[of(state)].add((step.action[0], of(full)))
    for before, after in zip(state.replicas, full.replicas):
      if before is not after and state_of(before) != state_of(after):
        is_update = full.updates and state_of(before) == "waiting"
        self.replicas[state_of(before)].add((
          "update" if is_update else step.action[0], state_of(after)))


# (replicas, aggregate, on_uneven): the number of states
MODELS = {(2, 2, "pad"): 7371, (2, 2, "shrink"): 7685, (2, 2, "repeat"): 9421}
LARGER = [(2, 2, "stop_all"), (2, 1, "stop_all"), (2, 1, "shrink"), (3, 2, "stop_all"),
          (3, 3, "pad"), (3, 2, "pad"), (3, 3, "shrink"), (3, 2, "shrink"), (3, 3, "repeat")]


def explored(models, most=math.inf):
  """Explores models; returns the numbers of states, and the transitions by both tables."""
  counts, seen = {}, (collections.defaultdict(set), collections.defaultdict(set))
  for rules in models:
    model = Model(*rules)
    checks = Checks(model)
    counts[rules] = explore(shortened(model.start), model.steps, checks, shortened, most)
    for all_of_them, found in zip(seen, (checks.rounds, checks.replicas)):
      for state, them in found.items():
        all_of_them[state] |= them
  return counts, seen


def test_all_states_of_two_replicas_and_the_transitions_of_the_tables():
  counts, (of_rounds, of_replicas) = explored(MODELS)
  assert counts == MODELS
  assert of_rounds == transitions(rounds, 0)
  assert of_replicas == transitions(rounds, 1)


@pytest.mark.slow
@pytest.mark.parametrize("rules", LARGER)
def test_all_states_of_more_rules(rules):
  counts, _ = explored([rules], 15000)  # of three replicas, those with the fewest steps
  assert counts[rules] > 4000


class CountsLateGradients(Model):
  """A late gradient counts."""

  def is_late(self, own, state):
    return False


class ForgetsTheEnd(Model):
  """The end frees no replica that waits."""

  def ended(self, state):
    return state._replace(ended=1)


class KeepsThoseThatLeft(Model):
  """The chief takes back the end, and the job of before keeps its place in the rounds."""

  def is_other_job(self, state, may_begin, is_chief):
    return may_begin and all(one.left for one in state.replicas)

  def join(self, state, i, may_begin, is_chief):
    state, outcome = super().join(state, i, may_begin, is_chief)
    return (state._replace(ended=0) if is_chief and may_begin and not outcome else state), outcome


class MarksNoUpdate(Model):
  """An update that is interrupted leaves no mark."""

  def finish(self, state, interrupted):
    state, was_interrupted = super().finish(state, interrupted)
    return state._replace(updating=0), was_interrupted


@pytest.mark.parametrize("bug, aggregate, said", [
  (CountsLateGradients, 1, "a late gradient is in an update"),
  (ForgetsTheEnd, 2, "it waits after the end"),
  (KeepsThoseThatLeft, 2, "it waits, and no one is awaited"),
  (MarksNoUpdate, 2, "it waits, and no one is awaited")])
def test_a_bug_of_the_model_is_found(bug, aggregate, said):
  model = bug(2, aggregate, "stop_all")
  with pytest.raises(AssertionError, match=said):
    explore(shortened(model.start), model.steps, Checks(model), shortened)


class Built:
  """The rounds of all replicas in one graph, with a session for each that examples share."""

  SLOTS = 64  # of the last updates

  def __init__(self, replicas, aggregate, on_uneven):
    self.model = Model(replicas, aggregate, on_uneven)
    of = local_server.record("protocols-rounds-%d-%d-%s" % (
      replicas, aggregate, on_uneven.replace("_", "-")), 20.0)
    self.graph, self._target = tf.Graph(), local_server.server().target
    self._config = tf.ConfigProto(device_filters=[of.cluster.task.name])
    with self.graph.as_default(), tf.container(of.container), tf.device(of.cluster.task.name):
      self._build([rounds.Rounds(self.model.rules, i, "r", "") for i in range(replicas)])
    self.sessions = [self.new_session() for _ in range(replicas)]
    self.sessions[0].run(self.made)

  def _build(self, made):
    count = len(made)
    self.gradient = tf.placeholder_with_default(tf.constant(0, tf.int64), [])
    self.interrupted = tf.placeholder_with_default(False, [])
    self.may_begin = tf.placeholder_with_default(tf.constant(1, tf.int64), [])
    self.other = tf.placeholder_with_default(tf.constant(0, tf.int64), [])
    rows, self.step = [tf.get_variable(name, shape, tf.int64, tf.zeros_initializer(),
                                       use_resource=True)
                       for name, shape in (("rows", [count]), ("step", []))]
    self.log = tf.get_variable(
      "log", [self.SLOTS, count], tf.int64, tf.zeros_initializer(), use_resource=True)
    self.made = [rows.initializer, self.step.initializer, self.log.initializer]

    def update(arrived):
      with tf.control_dependencies([tf.Assert(tf.logical_not(self.interrupted), [INTERRUPTED])]):
        number = self.step.read_value()
      logged = tf.scatter_update(self.log, number % self.SLOTS, arrived * rows.read_value())
      with tf.control_dependencies([logged]), tf.control_dependencies(
          [self.step.assign(number + 1, read_value=False)]):
        return self.step.read_value()

    self.ops = collections.defaultdict(list)
    for i, one in enumerate(made):
      wrote = tf.scatter_update(rows, i, self.gradient)
      self.ops["arrive"].append(tuple(one.arrive(update, [wrote.op])[:3]))
      self.ops["join"].append(one.join(list, self.may_begin, is_chief=not i))
      self.ops["clear"].append(one.clear())
      self.ops["resend"].append(one.resend())
      self.ops["end"].append(one.end())
      self.ops["tokens"].append(one._shared.tokens())
      self.ops["drain"].append(tf.raw_ops.QueueDequeueManyV2(
        handle=one._shared._queues[i], n=self.ops["tokens"][i], component_types=[tf.int64])[0].op)
      if self.model.rules.policy.pads:
        self.ops["leave"].append(one.leave(update))
      if self.model.rules.policy.shrinks:
        self.ops["drop"].append(one.drop(self.other, update))
      if self.model.rules.policy.repeats:
        self.ops["finish_pass"].append(one.finish_pass())
    self.look = made[0].look()

  def new_session(self):
    return tf.Session(self._target, self.graph, self._config)

  def close(self):
    for session in self.sessions:
      session.close()


class System:
  """Real rounds: each replica has a session, and a thread for a run that may wait."""

  def __init__(self, built):
    self._built = built
    self._sessions = built.sessions
    self._threads = concurrent.futures.ThreadPoolExecutor(len(self._sessions))
    self._runs = [None] * len(self._sessions)
    self._gradients, self._in_updates = [0] * len(self._sessions), set()
    for session, op in zip(built.sessions, built.ops["clear"]):  # may be the first step of one
      session.run([op, built.ops["drain"]])
    view = self._look()
    updates = int(self._sessions[0].run(built.step))
    self._updates = updates
    self.start = State((Replica(has_session=True),) * len(self._sessions), round=view.round,
                       updates=updates)

  def _look(self):
    return rounds.view_rounds(self._sessions[0].run(self._built.look))

  def perform(self, action):
    name, i, *arguments = action
    built = self._built
    if name == "kill":
      self._kill(i)
      return None
    feed = {built.interrupted: bool(arguments and name in ("arrive", "leave", "drop")
                                    and arguments[-1])}
    if name == "arrive":
      return self._arrive(i, feed)
    if name == "join":
      feed[built.may_begin] = arguments[0]
    if name == "drop":
      feed[built.other] = arguments[0]
    try:
      found = self._sessions[i].run(built.ops[name][i], feed)
    except tf.errors.OpError as error:
      return self._meaning(error)
    return None if found is None else bool(found)

  def _arrive(self, i, feed):
    self._gradients[i] = max(self._gradients) + 1
    feed[self._built.gradient] = self._gradients[i]
    fetches, session = self._built.ops["arrive"][i], self._sessions[i]
    run = self._runs[i] = self._threads.submit(session.run, fetches, feed)
    wait_for(lambda: run.done() or self._is_waiting(i))
    if not run.done():
      return None
    if isinstance(run.exception(), tf.errors.OpError):
      return self._meaning(run.exception())
    heard = heard_of(run)
    return None if heard == UPDATE else heard

  def _meaning(self, error):
    what = meaning(error)
    # Where both are so, either may come first; each asks for a new session.
    return PARTIAL if what == NOT_JOINED and self._look().updating else what

  def _is_waiting(self, i):
    view = self._look()
    return view.arrived[i] and not view.updating

  def _kill(self, i):
    self._sessions[i].close()
    if self._runs[i] is not None:
      concurrent.futures.wait([self._runs[i]], LIMIT)
      assert self._runs[i].done(), "a run of a session that is closed has not ended"
      self._runs[i] = None
    self._sessions[i] = self._built.new_session()

  def check(self, state):
    view = self._look()
    for name in Replica._fields[:8]:
      assert getattr(view, name) == [getattr(one, name) for one in state.replicas], name
    for name in ("round", "ended", "updating", "update_step", "joins"):
      assert getattr(view, name) == getattr(state, name), name
    for i, (own, run) in enumerate(zip(state.replicas, self._runs)):
      if own.waits:
        assert not run.done(), "replica %d does not wait: %s" % (i, heard_of(run))
      elif run is not None:
        wait_for(run.done)
        if own.heard:
          assert heard_of(run) == own.heard
    sizes = self._sessions[0].run(self._built.ops["tokens"])
    assert sizes == [int(bool(own.token)) for own in state.replicas], "tokens"
    if state.updates > self._updates:
      self._check_update(state)

  def _check_update(self, state):
    assert state.updates == self._updates + 1 == self._sessions[0].run(self._built.step)
    found = self._sessions[0].run(self._built.log)[self._updates % self._built.SLOTS].tolist()
    self._updates = state.updates
    assert found == [one if i in state.last else 0 for i, one in enumerate(self._gradients)]
    gradients = {one for one in found if one}
    assert not gradients & self._in_updates, "a gradient is in two updates"
    self._in_updates |= gradients

  def close(self):
    """Frees all that wait, as the hook does: by the clearing of a chief, and another token."""
    self._sessions[0].run(self._built.ops["clear"][0])
    for i, run in enumerate(self._runs):
      if run is not None and not run.done():
        self._sessions[i].run(self._built.ops["resend"][i])
        wait_for(run.done)
        assert heard_of(run) == NONE
    self._threads.shutdown()


def heard_of(run):
  """What a run of the training step has heard in the end."""
  try:
    return UPDATE if run.result()[2] else NONE
  except tf.errors.OpError as error:
    return meaning(error)


def meaning(error):
  if round_errors.is_end_of_replicas(error):
    return END
  texts = " ".join(failed_assertions(error))
  for text, what in (("an update was interrupted", PARTIAL), ("has not joined", NOT_JOINED),
                     (INTERRUPTED, INTERRUPTED), ("was reset", RESET)):
    if text in texts:
      return what
  raise error


def perform_rounds(rules, examples, length=12, first=()):
  built = Built(*rules)
  try:
    replay(built, first)
    perform(lambda: System(built), built.model.eager_steps, examples, length,
            often=["join", "arrive"])
  finally:
    built.close()


def replay(built, actions):
  """Performs these actions in this order."""
  system = System(built)
  state = system.start
  for action in actions:
    step, = [one for one in built.model.eager_steps(state) if one.action == action]
    assert system.perform(action) == step.outcome
    state = step.state
    system.check(state)
  system.close()


# Replica 1 has left an earlier job, and replica 2 has never come to it.
TAKES_BACK_AN_END = [("join", 0, 0, True), ("join", 1, 0, False), ("drop", 0, 1, False), ("end", 0),
                     ("join", 0, 1, True), ("arrive", 0, False), ("join", 1, 1, False),
                     ("arrive", 1, False)]


@pytest.mark.parametrize("rules, first", [
  ((2, 2, "pad"), []), ((3, 2, "shrink"), TAKES_BACK_AN_END)], ids=["pad", "shrink"])
def test_real_rounds_do_what_the_model_does(rules, first):
  perform_rounds(rules, 4, first=first)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("rules", [*MODELS, *LARGER])
def test_real_rounds_do_what_the_model_does_for_long(rules):
  perform_rounds(rules, 10, 30)


def test_a_bug_of_the_real_rounds_is_found(monkeypatch):
  monkeypatch.setattr(rounds._SharedState, "drain", lambda self: tf.no_op())  # old tokens stay
  with pytest.raises(AssertionError):
    perform_rounds((2, 2, "repeat"), 20)
