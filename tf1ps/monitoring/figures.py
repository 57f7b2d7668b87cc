"""The figures of one task, counted once for its status, its metrics and its heartbeat.

The loop's hooks count, and nothing here adds a message or an operation to a step. A heartbeat
carries the few figures of `to_json`; /metrics has all of them.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from tf1ps.replication import Ages


class WorkerFigures(NamedTuple):
  """The figures of a worker, since the start of its process."""

  steps: int = 0  # with those of threads beside the loop
  examples: int = 0  # trained on
  late_examples: int = 0  # of gradients that came too late for an update
  loss: Optional[float] = None  # of the last step
  ages: Optional[Ages] = None  # of the applied gradients; None: they are not measured
  dropped: int = 0  # gradients that were not applied
  skipped: int = 0  # bad records that were left out
  sessions: int = 0  # those after the first one are recoveries
  is_open: bool = False  # whether there is a session that can make steps
  # The seconds of the current run, and of the slowest of the last runs, if it lasts much longer.
  stalled: Optional[Tuple[float, float]] = None
  checkpoint_dir: str = ""  # of a chief that saves
  checkpoint_step: int = -1  # the global step of the last checkpoint
  checkpoint_age: float = 0.0  # seconds since it was saved
  checkpoints: int = 0  # saved by this process
  rolled_back: int = 0  # of the chief: global steps that were lost with ps
  # Of the chief: {"/job:ps/task:0": (bytes down, messages down, bytes up, messages up)} per step.
  traffic: Dict[str, tuple] = {}

  def to_json(self) -> Dict[str, object]:
    """Returns the figures that others see."""
    found: Dict[str, object] = {}
    if self.loss is not None and self.loss == self.loss:  # JSON has no NaN
      found["loss"] = round(self.loss, 6)
    if self.ages is not None and self.ages.gradients:
      found["age"] = [round(self.ages.mean, 2), self.ages.highest]
    if self.stalled is not None:
      found["stalled"] = [round(self.stalled[0], 1), round(self.stalled[1], 3)]
    if self.sessions > 1:
      found["recoveries"] = self.sessions - 1
    if self.checkpoint_dir:
      found["checkpoint"] = [
        self.checkpoint_dir, self.checkpoint_step, round(self.checkpoint_age, 1)]
    if self.traffic:
      found["traffic"] = {name: [round(each, 1) for each in values]
                          for name, values in self.traffic.items()}
    return found


class EvaluatorFigures(NamedTuple):
  """The figures of an evaluator, since the start of its process."""

  evaluations: int = 0
  global_step: Optional[int] = None  # of the last evaluated checkpoint
  metrics: Dict[str, float] = {}  # of that checkpoint
  run: str = ""  # the id of its run
