"""What a run of the training loop makes: one step, or several (`--steps_per_execution`).

Before each run the hook decides. It makes several only where they cannot lead past a stop: near the
end the steps are made one by one. The loop runs nothing itself, as step and losses are what this
hook asks for: so a run that is made again, after a recovery, is decided on anew.

Other hooks ask for what they need of all steps by `fetch`. Where the data end in the middle of a
run, the steps that it has made are counted before any other hook hears of the end.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Dict, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.training import progress, several_batches
from tf1ps.training import replica as replica_lib
from tf1ps.training.outcome import NanLossError
from tf1ps.transfer import Unrolled

_FIRST = 25  # as `faster` of the stops, for the first run of several steps in a session


class StepRuns(tf.train.SessionRunHook):
  """Has each run make its steps; the first of the loop's hooks.

  Attributes:
    steps: of the run that is being made, or was made last.
    losses: of its steps.
  """

  def __init__(self, replica: replica_lib.Replica, tracker: GlobalStepTracker,
               steps_per_execution: int = 1, more: Any = None):
    """Builds the copies of the step that runs of several need, in the replica's graph.

    Args:
      replica: what is trained.
      tracker: the tracker of the global step, which counts the steps.
      steps_per_execution: the steps of a run, where no stop is near.
      more: what `fetch("more")` is to bring, of lists and dicts.
    """
    self._tracker, self._rest = tracker, replica.rest
    self._one = dict(op=replica.train_op, loss=replica.loss, size=replica.batch_examples,
                     taken=replica.taken, counted=replica.counted, more=more)
    self._all = self._one
    self._several = steps_per_execution
    self._unrolled: Optional[Unrolled] = None
    self._feed: Dict[tf.Tensor, Any] = {}
    self._counter = self._stops = None
    self._lock = threading.RLock()
    self._in_flight = 1
    self._is_preparing = self._is_ready = False
    self._begun = self._begun_then = 0  # steps; the latter as of the tracker's last answer
    self.steps = 1
    self.losses: List[float] = []
    if steps_per_execution > 1:
      self._unrolled = built = Unrolled(
        replica.train_op, steps_per_execution, replica.loss, replica.batch_examples, replica.taken,
        fetches=dict(counted=replica.counted, more=more))
      self._all = dict(
        op=built.train_ops, loss=built.losses, size=built.batch_sizes, taken=built.taken,
        counted=[each["counted"] for each in built.fetches],
        more=[each["more"] for each in built.fetches])

  def connect(self, counter, stops, in_flight: int = 1) -> None:
    """Tells the hook what only the training loop knows.

    Args:
      counter: the `progress.ExampleCounter` of this worker.
      stops: the `stops.Stops` that end training.
      in_flight: how many threads make runs.
    """
    self._counter, self._stops, self._in_flight = counter, stops, in_flight
    self._tracker.add_listener(self._answered)

  def plan(self) -> int:
    """Decides how many steps a run makes that begins now; from any thread."""
    with self._lock:
      steps = self._several if self._several > 1 and self._may_be_several() else 1
      self._begun += steps
    return steps

  def _may_be_several(self):
    if self._is_ready:
      return self._stops.may_make(self._several, self._begun_now())
    # The servers prepare the first such run, for a second or more: others make many steps then.
    may = not self._is_preparing and self._stops.may_make(
      self._several, self._begun_now(), _FIRST)
    self._is_preparing |= may
    return may

  @property
  def is_near_end(self) -> bool:
    """Whether each step should look at the global step."""
    return self._stops.is_near(self._begun_now())

  def _begun_now(self):
    return (self._begun - self._begun_then) / self._in_flight

  def _answered(self, *unused_answer):
    with self._lock:
      self._begun_then = self._begun

  def fetch(self, name: str, steps: Optional[int] = None) -> Any:
    """What to fetch of the steps of a run; None where there is no such thing.

    Args:
      name: "op", "loss", "size" or "taken" (of one step a scalar, of several a vector), "counted",
        or "more" (of several a list, a structure for each step).
      steps: of the run; None: of the one that is being made.
    """
    wanted = self._one if (self.steps if steps is None else steps) == 1 else self._all
    return None if self._one[name] is None else wanted[name]

  def feed(self, steps: int, slot: int = 0) -> Dict[tf.Tensor, Any]:
    """What a run of so many steps is fed with.

    Args:
      steps: of the run.
      slot: another one for each thread that makes runs.
    """
    return {} if steps == 1 else self._unrolled.feed(slot)

  def count_done(self, session: tf.Session, feed: Dict[tf.Tensor, Any]) -> int:
    """Counts the examples of a run that the end of the data has ended; returns its steps.

    Args:
      session: that of the run.
      feed: what it was fed with.
    """
    if not feed:
      return 0
    done = self._unrolled.done(session, feed)
    self._counter.add(done.examples)
    self._counter.late += done.late
    return done.steps

  def check_losses(self, session) -> None:
    """Refuses a loss of the last run that is NaN.

    Args:
      session: the `monitored.MonitoredSession`.

    Raises:
      NanLossError: with the step of the first such loss.
    """
    at = next((i for i, loss in enumerate(self.losses) if math.isnan(loss)), None)
    if at is not None:
      after = len(self.losses) - 1 - at  # steps of the run
      raise NanLossError(session.call_inside(self._tracker.ask) - after,
                         self._tracker.own_steps - after)

  # The hook.

  def after_create_session(self, session, coord):
    self._is_preparing = self._is_ready = False

  def before_run(self, run_context):
    self.steps = self._tracker.run_steps = self.plan()
    self._feed = self.feed(self.steps)
    return tf.train.SessionRunArgs([self.fetch("op"), self.fetch("loss")], self._feed or None)

  def after_run(self, run_context, run_values):
    self.losses = progress.as_list(run_values.results[1])
    self.has_made(self.steps)

  def has_made(self, steps: int) -> None:
    """Notes that a run of so many steps is made."""
    self._is_ready |= steps > 1

  def goes_on(self, session, error) -> bool:
    """The session's, at the end of the data: counts what the run has done."""
    del error
    feed, self._feed = self._feed, {}
    self._tracker.own_steps += session.call_inside(lambda inside: self.count_done(inside, feed))
    if self._rest is not None:
      self._push_rest(session)
    return False

  def _push_rest(self, session):
    found = several_batches.push_rest(self._rest, session.call_inside)
    if found is not None:
      self._tracker.own_steps += 1
      self._counter.note(found["size"], found.get("taken", True))
      if np.isnan(found["loss"]):
        raise tf.train.NanLossDuringTrainingError()
