"""Collects the figures of this worker for its heartbeat and its metrics, outside of the steps.

The heartbeat's thread calls it once per second, and a scrape of /metrics when it comes. It reads
what the loop's hooks have counted, and adds nothing to a step.
"""

from __future__ import annotations

from typing import Callable, Optional

from tf1ps.monitoring import WorkerFigures
from tf1ps.session import Membership
from tf1ps.training import traffic_report


class TaskFigures:
  """Makes the `WorkerFigures` of a worker from its hooks."""

  def __init__(self, run: Membership, count_steps: Callable[[], int], counter, execution,
               policies, traffic, stalls, count_skipped: Callable[[], int]):
    """Has the heartbeat send the figures.

    Args:
      run: this worker's membership.
      count_steps: returns the steps of this process.
      counter: the `progress.ExampleCounter`.
      execution: the `execution.Execution`, which knows the losses.
      policies: the `StalenessPolicies`, which know the ages of gradients.
      traffic: the `TrafficReport` of the chief, or None.
      stalls: the `StallWatch`, which knows the session.
      count_skipped: returns the bad records that were left out.
    """
    self._run, self._count_steps = run, count_steps
    self._counter, self._execution = counter, execution
    self._policies, self._traffic = policies, traffic
    self._stalls, self._count_skipped = stalls, count_skipped
    run.heartbeat.describe_by(self.collect)

  def collect(self) -> WorkerFigures:
    """Returns the figures as of now; any thread may call it."""
    losses, lifecycle = self._execution.losses, self._stalls.lifecycle
    found = WorkerFigures(
      steps=self._count_steps(), examples=self._counter.own, late_examples=self._counter.late,
      loss=losses[-1] if losses else None, ages=self._policies.ages,
      dropped=self._counter.late_batches, skipped=self._count_skipped(),
      rolled_back=self._run.rolled_back, traffic=_by_ps(self._traffic))
    if lifecycle is None:
      return found
    session, saved = lifecycle.session, lifecycle.last_save()
    found = found._replace(
      sessions=lifecycle.sessions, is_open=session is not None and not session.is_aborted)
    if found.is_open:
      found = found._replace(stalled=self._stalls.stalled())
    if saved is None:
      return found
    return found._replace(
      checkpoint_dir=saved.directory, checkpoint_step=saved.step, checkpoint_age=saved.age,
      checkpoints=saved.count)


def _by_ps(traffic: Optional[traffic_report.TrafficReport]) -> dict:
  report = None if traffic is None else traffic.report
  if report is None:
    return {}
  return {name: (down.bytes, down.messages, up.bytes, up.messages)
          for name, (down, up) in report.by_ps.items()}
