"""Explores the model of a protocol, and performs it on the real operations.

A model is a function from a state, which is hashable, to its steps. `explore` goes through all
states that can be reached. `perform` has hypothesis draw steps, does each of them on a real system,
and compares the system with the model after each step. `transitions` reads a table of states in a
module's docstring, which is compared with the steps that the exploration has seen.
"""
from __future__ import annotations

import collections
import math
import re
import threading
import time
from typing import Any, Callable, Dict, Hashable, Iterable, NamedTuple, Sequence, Set, Tuple

import hypothesis
from hypothesis import stateful
from hypothesis import strategies as st

LIMIT = 60.0  # seconds; of what is done at once


class Step(NamedTuple):
  """A step of a model."""

  action: tuple  # its name, and its arguments
  state: Hashable  # the state after it
  outcome: Any = None  # what the caller of the operation gets


def explore(start: Hashable, steps: Callable[[Any], Iterable[Step]],
            check: Callable[[Any, Step], None],
            shorten: Callable[[Any], Hashable] = lambda state: state,
            most: float = math.inf) -> int:
  """Calls check(state, step) for each step of each state that can be reached; counts the states.

  Args:
    start: the first state.
    steps: the model.
    check: an AssertionError of it names the steps that lead to it.
    shorten: leaves out of a state what plays no part in the steps that follow.
    most: ends with so many states, those that take the fewest steps.
  """
  before = {start: None}  # {state: the state before, and the action between}
  queue = collections.deque(before)
  while queue and len(before) < most:
    state = queue.popleft()
    for step in steps(state):
      try:
        check(state, step)
      except AssertionError as error:
        raise AssertionError("%s\nafter %s\nin %r" % (
          error, [*_way(before, state), step.action], step.state)) from error
      after = shorten(step.state)
      if after not in before:
        before[after] = state, step.action
        queue.append(after)
  return len(before)


def _way(before, state):
  actions = []
  while before[state] is not None:
    state, action = before[state]
    actions.append(action)
  return actions[::-1]


def perform(make_system, steps, examples: int, length: int, often: Sequence[str] = ()) -> None:
  """Performs drawn steps of a model on systems; raises AssertionError where they differ.

  Args:
    make_system: makes a system. `start` is its state in the model, `perform(action)` does a step
      and returns its outcome, `check(state)` compares with a state of the model, `close()` ends it.
    steps: the model; the same action has one step.
    examples: the number of systems.
    length: of steps on each.
    often: the names of actions that are drawn more often than the others.
  """
  class Machine(stateful.RuleBasedStateMachine):

    def __init__(self):
      super().__init__()
      self.system = make_system()
      self.state = self.system.start

    @stateful.rule(data=st.data())
    def act(self, data):
      possible = steps(self.state)
      # By the name first: an action with many arguments is not drawn more often.
      names = {step.action[0] for step in possible}
      name = data.draw(st.sampled_from(
        [name for name in often if name in names] * 3 + sorted(names)))
      step = data.draw(st.sampled_from([one for one in possible if one.action[0] == name]))
      outcome = self.system.perform(step.action)
      assert outcome == step.outcome, "%r: %r, and the model says %r" % (
        step.action, outcome, step.outcome)
      self.state = step.state
      self.system.check(self.state)

    def teardown(self):
      self.system.close()

  hypothesis_settings = hypothesis.settings(
    max_examples=examples, stateful_step_count=length, derandomize=True, deadline=None,
    database=None, report_multiple_bugs=False,
    phases=[hypothesis.Phase.generate],  # to shrink what is found takes minutes on real systems
    suppress_health_check=list(hypothesis.HealthCheck))
  stateful.run_state_machine_as_test(Machine, settings=hypothesis_settings)


def transitions(module, table: int = 0) -> Dict[str, Set[Tuple[str, str]]]:
  """Returns {state: {(operation, next state)}} of a table of states in a module's docstring.

  The head of a table begins with "state" and ends with "next state", whose cells have the form
  "computing: `join`, `clear`; left: `drop`".
  """
  lines = module.__doc__.splitlines()
  heads = [i for i, line in enumerate(lines) if re.match(r"  state  .*next state$", line)]
  last = lines[heads[table]].index("next state")
  name, cells = "", {}
  for line in lines[heads[table] + 1:]:
    if not line.strip():
      break
    name = line[2:].split("  ")[0] or name
    cells[name] = cells.get(name, "") + " " + line[last:]
  return {name: {(operation, part.partition(":")[0].strip()) for part in cell.split(";")
                 for operation in re.findall(r"`(\w+)`", part)} for name, cell in cells.items()}


def wait_for(condition: Callable[[], Any]) -> None:
  """Waits for what comes at once, as often as a step of a model."""
  pause, until = threading.Event(), time.monotonic() + LIMIT
  while not condition():
    assert time.monotonic() < until, "it has not come within %g s" % LIMIT
    pause.wait(0.002)
