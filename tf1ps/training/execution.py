"""Decides whether a run of the training loop makes one step or several (`--steps_per_execution`).

`Fetches` holds the fetches of a run of one step and of a run of several. Before each run,
`Execution` chooses between them: a run makes several steps only if they cannot pass a stop, so the
steps near the end run one by one. A run that is repeated after a recovery is chosen anew.

Other hooks fetch values of all steps by `Fetches.fetch`. If the data end in the middle of a run,
`Execution` counts its finished steps before any other hook learns of the end.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Dict, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.cluster import LifecycleHook
from tf1ps.training import progress
from tf1ps.training import step as step_lib
from tf1ps.training.outcome import NanLossError
from tf1ps.transfer import Unrolled

_FIRST = 25  # the `faster` of `stops.Stops.may_make` before a session's first run of several steps


class Fetches:
  """The fetches of a run of one step or of several.

  Attributes:
    steps: the steps of the current or last run; `choose` sets it.
    most: the steps of a run that is not near a stop.
  """

  def __init__(self, step: step_lib.Step, most: int = 1, more: Any = None):
    """Builds the copies of the step for runs of `most` steps, in the step's graph.

    `more` is made of lists and dicts; `fetch("more")` returns it.
    """
    self.steps, self.most = 1, most
    self._one = dict(op=step.train_op, loss=step.loss, size=step.examples, taken=step.taken,
                     counted=step.counted, more=more)
    self._all = self._one
    self._unrolled: Optional[Unrolled] = None
    if most > 1:
      self._unrolled = built = Unrolled(
        step.train_op, most, step.loss, step.examples, step.taken,
        fetches=dict(counted=step.counted, more=more))
      self._all = dict(
        op=built.train_ops, loss=built.losses, size=built.batch_sizes, taken=built.taken,
        counted=[each["counted"] for each in built.fetches],
        more=[each["more"] for each in built.fetches])

  def choose(self, steps: int) -> None:
    """Sets the number of steps of the next run."""
    self.steps = steps

  def fetch(self, name: str, steps: Optional[int] = None) -> Any:
    """Returns the fetches of a run of `steps` steps; None if the step has no such value.

    Args:
      name: "op", "loss", "size" or "taken" (a scalar for one step, a vector for several), "counted"
        or "more" (for several steps a list with a structure per step).
      steps: None: the steps of the current run.
    """
    wanted = self._one if (self.steps if steps is None else steps) == 1 else self._all
    return None if self._one[name] is None else wanted[name]

  def feed(self, steps: int, slot: int = 0) -> Dict[tf.Tensor, Any]:
    """Returns the feed of a run of so many steps; each thread that makes runs has its own slot."""
    return {} if steps == 1 else self._unrolled.feed(slot)

  def count_done(self, session: tf.Session, feed: Dict[tf.Tensor, Any]):
    """Returns the finished steps of a run with this feed that the end of the data has ended.

    A `transfer.Done` with steps, examples and late; None after a run of one step.
    """
    return self._unrolled.done(session, feed) if feed else None


class Execution(LifecycleHook):
  """Chooses the steps of each run and fetches them; stands first of the loop's hooks.

  Attributes:
    losses: the losses of the last run's steps.
  """

  def __init__(self, fetches: Fetches, tracker: GlobalStepTracker,
               counter: progress.ExampleCounter, stops, in_flight: int = 1,
               partial: Optional[step_lib.AccumulatedRemainder] = None):
    """Creates the hook; `in_flight` threads make runs. `tracker` stands before this hook."""
    self._fetches, self._tracker, self._counter = fetches, tracker, counter
    self._stops, self._in_flight, self._partial = stops, in_flight, partial
    self._feed: Dict[tf.Tensor, Any] = {}
    self._lock = threading.RLock()
    self._is_preparing = self._is_ready = False
    self._begun = self._begun_then = 0  # steps; the second as of the tracker's last answer
    self.losses: List[float] = []
    tracker.add_listener(self._note_answer)

  def plan(self) -> int:
    """Returns the number of steps of a run that begins now; any thread may call it."""
    most = self._fetches.most
    with self._lock:
      steps = most if most > 1 and self._may_be_several(most) else 1
      self._begun += steps
    return steps

  def _may_be_several(self, most):
    if self._is_ready:
      return self._stops.may_make(most, self._begun_now())
    # The servers prepare the first such run for a second or more; other workers make many steps.
    may = not self._is_preparing and self._stops.may_make(most, self._begun_now(), _FIRST)
    self._is_preparing |= may
    return may

  @property
  def is_near_end(self) -> bool:
    """Whether each step should read the global step."""
    return self._stops.is_near(self._begun_now())

  def _begun_now(self):
    return (self._begun - self._begun_then) / self._in_flight

  def _note_answer(self, *unused_answer):
    with self._lock:
      self._begun_then = self._begun

  def count_done(self, session: tf.Session, feed: Dict[tf.Tensor, Any]) -> int:
    """Counts the examples of a run that the end of the data has ended; returns its steps."""
    done = self._fetches.count_done(session, feed)
    if done is None:
      return 0
    self._counter.add(done.examples, done.late)
    return done.steps

  def note_made(self, steps: int) -> None:
    """Notes that a run of so many steps was made."""
    self._is_ready |= steps > 1

  # The hook.

  def after_create_session(self, session, coord):
    self._is_preparing = self._is_ready = False

  def before_run(self, run_context):
    steps = self.plan()
    self._fetches.choose(steps)
    self._feed = self._fetches.feed(steps)
    # With one step per run, the loop fetches the operation itself.
    op = self._fetches.fetch("op") if self._fetches.most > 1 else []
    return tf.train.SessionRunArgs([op, self._fetches.fetch("loss")], self._feed or None)

  def after_run(self, run_context, run_values):
    self.losses = progress.as_list(run_values.results[1])
    self.note_made(self._fetches.steps)
    at = next((i for i, loss in enumerate(self.losses) if math.isnan(loss)), None)
    if at is not None:
      after = len(self.losses) - 1 - at  # the run's later steps
      raise NanLossError(self._tracker.ask(run_context.session) - after,
                         self._tracker.own_steps - after)

  def on_end_of_data(self, session, error):
    feed, self._feed = self._feed, {}
    self._tracker.add_steps(session.call_inside(lambda inside: self.count_done(inside, feed)))
    found = None
    if self._partial is not None:
      found = step_lib.push_partial(self._partial, session.call_inside)
    if found is not None:
      self._tracker.add_steps(1)
      self._counter.note(found["size"], found.get("taken", True))
      if np.isnan(found["loss"]):
        raise tf.train.NanLossDuringTrainingError()
