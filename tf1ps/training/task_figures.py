"""Collects the figures of this worker for its heartbeat and its metrics, outside of the steps.

The heartbeat's thread calls it once per second, and a scrape of /metrics when it comes. It reads
what the loop's hooks have counted, and adds nothing to a step. It waits for no disk and no network,
because the beat is sent after it.
"""

from __future__ import annotations

from typing import Optional

from tf1ps.monitoring import WorkerFigures
from tf1ps.session import Membership
from tf1ps.training import traffic_report
from tf1ps.training.counts import Counts


class TaskFigures:
  """Makes the `WorkerFigures` of a worker from its hooks."""

  def __init__(self, run: Membership, counts: Counts, policies, traffic, stalls, bad_records):
    """Has the heartbeat send the figures.

    Args:
      run: this worker's membership.
      counts: the loop's ledger.
      policies: the `StalenessPolicies`, which know the ages of gradients.
      traffic: the `TrafficReport` of the chief, or None.
      stalls: the `StallWatch`, which knows the session.
      bad_records: counts the bad records that were left out.
    """
    self._run, self._counts, self._policies = run, counts, policies
    self._traffic, self._stalls, self._bad_records = traffic, stalls, bad_records
    run.heartbeat.describe_by(self.collect)

  def collect(self) -> WorkerFigures:
    """Returns the figures as of now; any thread may call it."""
    counts, lifecycle = self._counts, self._stalls.lifecycle
    figures = WorkerFigures(
      steps=counts.steps, examples=counts.own_examples, late_examples=counts.late,
      loss=counts.losses[-1] if counts.losses else None, ages=self._policies.ages,
      dropped=counts.late_batches, skipped=self._bad_records.skipped,
      rolled_back=self._run.watch.rolled_back, traffic=_by_ps(self._traffic))
    if lifecycle is None:
      return figures
    session, saved = lifecycle.session, lifecycle.last_save()
    figures = figures._replace(
      sessions=lifecycle.sessions, is_open=session is not None and not session.is_aborted)
    if figures.is_open:
      figures = figures._replace(stalled=self._stalls.stalled())
    if saved is None:
      return figures
    return figures._replace(
      checkpoint_dir=saved.directory, checkpoint_step=saved.step, checkpoint_age=saved.age,
      checkpoints=saved.count)


def _by_ps(traffic: Optional[traffic_report.TrafficReport]) -> dict:
  report = None if traffic is None else traffic.report
  if report is None:
    return {}
  return {name: (down.bytes, down.messages, up.bytes, up.messages)
          for name, (down, up) in report.by_ps.items()}
