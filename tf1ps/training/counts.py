"""The ledger of a worker's loop: its steps and examples, what its runs make, and why it ends.

The loop owns one `Counts` and hands it to every hook that writes it or reads it. So no hook asks
another hook for a number. The text of each attribute says which hook writes the attribute.
"""

from __future__ import annotations

import threading
from typing import Any, List, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.session import Membership


class Counts:
  """The ledger of a worker's loop.

  Attributes:
    tracker: the hook that tracks the global step and the loop's own steps.
    fetches: the `execution.Fetches`, which know the steps of a run.
    steps_beside: the steps that threads beside the loop have made; they write it by `add_beside`.
    losses: the losses of the last run's steps; Execution writes them.
    examples: the examples trained on, over all recoveries, and over a restart if the run remembers
      the earlier examples; ExampleCounter and the threads write it and the next four attributes.
    own_examples: the examples that this process has trained on.
    late: examples of batches whose gradients came too late for an update.
    late_batches: the number of these batches.
    largest: the number of examples in the largest batch so far.
    examples_before: the examples that the job had trained on before this run; TrainedExamples
      writes it in the first session.
    epochs_before: the epochs that the job had finished when this process started.
    data_ended: whether the last step has reached the end of this worker's data; EndOfDataHook or
      StepVote writes it and the next three attributes.
    was_ended: whether another worker has ended training.
    by_signal: whether a signal has ended a worker, and thereby the loops of all workers.
    left: this worker's remaining data at the end of training, in words; None: not counted.
  """

  def __init__(self, tracker: GlobalStepTracker, fetches: Any = None, epochs_before: int = 0):
    """Creates the ledger of a loop that has made no step."""
    self.tracker, self.fetches, self.epochs_before = tracker, fetches, epochs_before
    self._lock = threading.Lock()
    self.steps_beside = 0
    self.losses: List[float] = []
    self.examples = self.own_examples = 0
    self.late = self.late_batches = self.largest = 0
    self.examples_before = 0
    self.data_ended = self.was_ended = self.by_signal = False
    self.left: Any = None
    self.knows_earlier = False  # whether `examples` includes the examples of an earlier process

  def go_on(self, other: "Counts") -> None:
    """Takes over the steps and examples of an earlier loop of this process."""
    self.tracker.add_steps(other.steps)
    self.examples, self.own_examples, self.late = other.examples, other.own_examples, other.late
    self.late_batches, self.largest, self.knows_earlier = other.late_batches, other.largest, True

  @property
  def steps(self) -> int:
    """The steps of this process, with those of the threads beside the loop."""
    return self.tracker.own_steps + self.steps_beside

  @property
  def most_run_steps(self) -> int:
    """The number of steps in a run that is not near a stop."""
    return 1 if self.fetches is None else self.fetches.most

  @property
  def progress(self) -> tuple:
    """A tuple that changes with each step."""
    return self.tracker.own_steps, self.steps_beside, self.examples, self.late

  def add_beside(self, steps: int) -> None:
    """Adds steps of a thread beside the loop."""
    with self._lock:
      self.steps_beside += steps

  def add_examples(self, examples: int, late: int = 0) -> None:
    """Adds examples and late examples; any thread may call it."""
    with self._lock:
      self.examples += examples
      self.own_examples += examples
      self.late += late

  def note_batches(self, sizes, taken=True) -> None:
    """Adds the batches of a run, of sizes `sizes`: a scalar or a vector; any thread may call it.

    `taken` says which of their gradients are in an update; True: all of them.
    """
    sizes = as_list(sizes)
    taken = [True] * len(sizes) if taken is True else as_list(taken)
    for size, is_taken in zip(sizes, taken):
      self.add_examples(size if is_taken else 0, 0 if is_taken else size)
    with self._lock:
      self.late_batches += taken.count(False)
      self.largest = max([self.largest, *sizes])


class ExampleCounter(tf.train.SessionRunHook):
  """Counts the examples of the loop's own steps."""

  def __init__(self, counts: Counts, run: Optional[Membership] = None):
    """Creates the hook; in the first session it adds the run's examples of an earlier process."""
    self._counts, self._run, self._fetches = counts, run, counts.fetches
    self._names = [name for name in ("size", "taken") if self._fetches.fetch(name) is not None]

  def after_create_session(self, session, coord):
    if self._run is not None and not self._counts.knows_earlier:
      self._counts.knows_earlier = True
      self._counts.examples += self._run.examples_before

  def before_run(self, run_context):
    return tf.train.SessionRunArgs({name: self._fetches.fetch(name) for name in self._names})

  def after_run(self, run_context, run_values):
    self._counts.note_batches(
      run_values.results["size"], run_values.results.get("taken", True))


def as_list(value) -> list:
  """Returns a fetched scalar or vector as a list of numbers."""
  value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
  return value if isinstance(value, list) else [value]
