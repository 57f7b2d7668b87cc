"""Decides whether a run of the training loop makes one step or several (`--steps_per_execution`).

`Fetches` holds the fetches of a run of one step and of a run of several steps. Under
`--steps_per_execution=auto`, auto_steps.py finds the number of steps. Before each run, `Execution`
chooses one of the two runs: a run makes several steps only if they cannot pass a stop, so the steps
near the end run one by one. `Execution` chooses again before a run that is repeated after a
recovery.

Other hooks fetch values of all steps by `Fetches.fetch`. If the data end in the middle of a run,
`Execution` counts the run's finished steps before any other hook learns of the end.
"""

from __future__ import annotations

import math
import threading
from typing import Any, Dict, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook
from tf1ps.graph import needed_ops, ops_of
from tf1ps.training import step as step_lib
from tf1ps.training.counts import Counts, as_list
from tf1ps.training.outcome import NanLossError
from tf1ps.transfer import Unrolled, may_gain_in_long_runs

_FIRST = 25  # `faster` in `stops.Stops.may_make` before a session's first run of several steps


class Fetches:
  """The fetches of a run of one step or of several.

  Attributes:
    steps: the steps of the current or last run; `choose` sets it.
    most: the steps of a run that is not near a stop.
    has_op: whether a hook fetches the training operation; otherwise the loop itself fetches it.
    graph: the step's graph.
  """

  def __init__(self, step: step_lib.Step, most: int = 1, more: Any = None,
               may_grow: bool = False):
    """Builds the copies of the step for runs of `most` steps, in the step's graph.

    `more` is a structure of further fetches, made of lists and dicts; `fetch("more")` returns it.
    `may_grow` allows calls of `grow`.
    """
    self.steps, self.most, self.has_op = 1, 1, most > 1 or may_grow
    self.graph = next((tensor.graph for tensor in (step.examples, step.loss)
                       if isinstance(tensor, tf.Tensor)), None)
    self._reads_early = step.reads_early
    self._single = dict(op=step.train_op, loss=step.loss, size=step.examples, taken=step.taken,
                        counted=step.counted, more=more)
    self._several = self._single
    self._unrolled: Optional[Unrolled] = None
    if most > 1:
      self.grow(most)

  def grow(self, most: int) -> None:
    """Builds the copies of the step for runs of `most` steps, unless they are there.

    Raises ValueError if the step cannot be copied; then each run makes one step.
    """
    if self._unrolled is None or self._unrolled.steps != most:
      self._build(most)
    self.most = most

  def _build(self, most):
    step = self._single
    self._unrolled = built = Unrolled(
      step["op"], most, step["loss"], step["size"], step["taken"],
      fetches=dict(counted=step["counted"], more=step["more"]), reads_early=self._reads_early)
    self._several = dict(
      op=built.train_ops, loss=built.losses, size=built.batch_sizes, taken=built.taken,
      counted=[each["counted"] for each in built.fetches],
      more=[each["more"] for each in built.fetches])

  def count_ops(self) -> int:
    """Returns the number of operations that a step needs."""
    return len(needed_ops(ops_of([self._single["op"], self._single["loss"]])))

  def may_gain_in_long_runs(self) -> bool:
    """Whether runs of several steps may save a part of each step, however long a step is."""
    loss = self._single["loss"]
    return loss is not None and may_gain_in_long_runs(
      [self._single["op"], loss], loss.device, self._reads_early)

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
    wanted = self._single if (self.steps if steps is None else steps) == 1 else self._several
    return None if self._single[name] is None else wanted[name]

  def feed(self, steps: int, slot: int = 0) -> Dict[tf.Tensor, Any]:
    """Returns the feed of a run of `steps` steps; each thread that makes runs has its own slot."""
    return {} if steps == 1 else self._unrolled.feed(slot)

  def count_done(self, session: tf.Session, feed: Dict[tf.Tensor, Any]):
    """Counts the finished steps of a run with this feed that the end of the data has cut short.

    Returns a `transfer.Done` with steps, examples and late; None after a run of one step.
    """
    return self._unrolled.done(session, feed) if feed else None


class Execution(LifecycleHook):
  """Chooses the steps of each run and fetches them; the first of the loop's hooks."""

  def __init__(self, counts: Counts, stops, in_flight: int = 1,
               partial: Optional[step_lib.AccumulatedRemainder] = None):
    """Creates the hook, which must come after the tracker; `in_flight` threads make runs."""
    self._fetches, self._tracker, self._counts = counts.fetches, counts.tracker, counts
    self._stops, self._in_flight, self._partial = stops, in_flight, partial
    self._feed: Dict[tf.Tensor, Any] = {}
    self._lock = threading.RLock()
    self._is_preparing = self._is_ready = False
    self._begun = self._begun_then = 0  # steps; `_begun_then`: at the tracker's last answer
    self._tracker.add_listener(self._note_answer)

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
    # The servers need a second or more to prepare the first run of several steps. Meanwhile the
    # other workers make many steps.
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
    """Counts the examples of a run that the end of the data has cut short; returns its steps."""
    done = self._fetches.count_done(session, feed)
    if done is None:
      return 0
    self._counts.add_examples(done.examples, done.late)
    return done.steps

  def note_made(self, steps: int) -> None:
    """Notes that a run of `steps` steps was made."""
    self._is_ready |= steps > 1

  # The hook.

  def after_create_session(self, session, coord):
    self._is_preparing = self._is_ready = False

  def before_run(self, run_context):
    steps = self.plan()
    self._fetches.choose(steps)
    self._feed = self._fetches.feed(steps)
    op = self._fetches.fetch("op") if self._fetches.has_op else []
    return tf.train.SessionRunArgs([op, self._fetches.fetch("loss")], self._feed or None)

  def after_run(self, run_context, run_values):
    losses = as_list(run_values.results[1])
    self._counts.losses = losses
    self.note_made(self._fetches.steps)
    at = next((i for i, loss in enumerate(losses) if math.isnan(loss)), None)
    if at is not None:
      after = len(losses) - 1 - at  # the run's later steps
      raise NanLossError(self._tracker.ask(run_context.session) - after,
                         self._tracker.own_steps - after)

  def on_end_of_data(self, session, error):
    feed, self._feed = self._feed, {}
    self._tracker.add_steps(session.call_inside(lambda inside: self.count_done(inside, feed)))
    update = self._partial and step_lib.push_partial(self._partial, session.call_inside)
    if update is not None:
      self._tracker.add_steps(1)
      self._counts.note_batches(update["size"], update.get("taken", True))
      if np.isnan(update["loss"]):
        raise tf.train.NanLossDuringTrainingError()
