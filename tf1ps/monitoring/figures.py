"""The figures of a task, counted once for its status, its metrics and its heartbeat.

The loop's hooks count the figures, without a further message or operation in a step. A heartbeat
has the few figures of `to_json`; /metrics has all figures.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from tf1ps.replication import Ages


class WorkerFigures(NamedTuple):
  """The figures of a worker, since the start of its process."""

  steps: int = 0  # including the steps of threads beside the loop
  examples: int = 0  # trained on
  late_examples: int = 0  # of gradients that came too late for an update
  loss: Optional[float] = None  # of the last step
  ages: Optional[Ages] = None  # of the applied gradients; None: not measured
  dropped: int = 0  # gradients that were not applied
  skipped: int = 0  # bad records that were left out
  sessions: int = 0  # the first session, and another session for each recovery
  is_open: bool = False  # whether a session is open that can make steps
  # The seconds of the current run, and of the slowest of the last runs; None unless it stalls.
  stalled: Optional[Tuple[float, float]] = None
  checkpoint_dir: str = ""  # of a chief that saves
  checkpoint_step: int = -1  # the global step of the last checkpoint
  checkpoint_age: float = 0.0  # seconds since its save
  checkpoints: int = 0  # saved by this process
  rolled_back: int = 0  # on the chief: the number of global steps that were lost with ps
  # On the chief: {"/job:ps/task:0": (bytes down, messages down, bytes up, messages up)} per step.
  traffic: Dict[str, tuple] = {}

  def to_json(self) -> Dict[str, object]:
    """Returns the figures of the heartbeat."""
    values: Dict[str, object] = {}
    if self.loss is not None and self.loss == self.loss:  # JSON has no NaN
      values["loss"] = round(self.loss, 6)
    if self.ages is not None and self.ages.gradients:
      values["age"] = [round(self.ages.mean, 2), self.ages.highest]
    if self.stalled is not None:
      values["stalled"] = [round(self.stalled[0], 1), round(self.stalled[1], 3)]
    if self.sessions > 1:
      values["recoveries"] = self.sessions - 1
    if self.checkpoint_dir:
      values["checkpoint"] = [
        self.checkpoint_dir, self.checkpoint_step, round(self.checkpoint_age, 1)]
    if self.traffic:
      values["traffic"] = {name: [round(number, 1) for number in numbers]
                           for name, numbers in self.traffic.items()}
    return values


class EvaluatorFigures(NamedTuple):
  """The figures of an evaluator, since the start of its process."""

  evaluations: int = 0
  global_step: Optional[int] = None  # of the last evaluated checkpoint
  metrics: Dict[str, float] = {}  # of that checkpoint
  run: str = ""  # the id of its run
