"""Reports the traffic of the chief's steps and the shares of their time.

1. Before the session: the traffic by the graph (transfer/traffic.py), a table in the debug log.
2. Now and then: a traced run of the training step (transfer/step_time.py) gives the sent bytes,
   also where the graph does not know them, and the shares of time. Both go to the summaries, also
   per ps.
3. At the end: a part of the chief's last line.

A traced run takes longer than other runs. With two small variables it takes 2 to 7 ms longer. With
200 small variables it takes half of a run's time longer on TensorFlow 2.21, and several times a
run's time longer on 1.15. Traces may take one percent of the time. So the first trace waits until
training has run long enough. The next trace follows after 100 times the cost of the last trace, and
not before a minute has passed.
"""

from __future__ import annotations

import collections
import logging
import statistics
import time
from typing import Callable, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import GlobalStepTracker
from tf1ps.session import write_summary
from tf1ps.transfer import (
  StepTraffic,
  TimeShares,
  merge_trace,
  read_trace,
  report_traffic,
  sent_messages,
  time_shares,
  traffic_table,
)

_log = logging.getLogger("tf1ps")
TAG = "traffic/"
# The assumed cost of the first trace: seconds and runs. Measured with two and with 200 small
# variables: 6 ms and 1 run on TensorFlow 2.21; 2 ms and 10 runs on 1.15.
_FIRST_COST = 0.02, 10
_KEPT = 20  # the runs without a trace whose median is the usual time


class TrafficReport(tf.train.SessionRunHook):
  """Reports bytes, messages and shares of time of the training step.

  Attributes:
    report: the traffic by the graph and the last traced run; None before `begin`.
    shares: the `TimeShares` of each traced run.
    steps: the training steps of each of these runs.
    cost: the seconds that traced runs took beyond their usual time.
  """

  def __init__(self, tracker: GlobalStepTracker, fetches,
               worker: Optional[str] = None, batch: Optional[int] = None,
               count_steps: Callable[[], int] = lambda: 1, directory: Optional[str] = None,
               first_run: int = 10, every_secs: float = 60.0, max_cost: float = 0.01):
    """Creates the hook.

    Args:
      tracker: tracks the global step; it stands before this hook.
      fetches: the first fetches of the loop, as for `traffic.report_traffic`.
      worker: the task of the session's target, "/job:worker/task:0"; None: see `report_traffic`.
      batch: the examples of a batch, or None.
      count_steps: returns the training steps of a run, which may change.
      directory: the directory of the event files; None writes none.
      first_run: the first run of this process that may be traced.
      every_secs: the least number of seconds between two traces.
      max_cost: the share of the time that traces may take.
    """
    if first_run < 1 or not every_secs >= 0 or not 0 < max_cost <= 1:
      raise ValueError("first_run must be 1 or more, every_secs not negative, max_cost above 0 and "
                       "at most 1; got %r, %r, %r" % (first_run, every_secs, max_cost))
    self._tracker = tracker
    self._fetches, self._worker, self._batch = fetches, worker, batch
    self._count_steps, self.steps = count_steps, 1
    self._directory = directory
    self._first_run, self._every_secs, self._max_cost = first_run, every_secs, max_cost
    self._runs = 0
    self._times = collections.deque(maxlen=_KEPT)
    self._began = self._next = None
    self._run_began = 0.0
    self._traced = False
    self._graph: Optional[StepTraffic] = None
    self.report: Optional[StepTraffic] = None
    self.shares: List[TimeShares] = []
    self.cost = 0.0

  def begin(self):
    self.steps = self._count_steps()
    self._graph = report_traffic(self._fetches, self._worker, self._batch, self.steps)
    self.report = self._graph
    _log.debug("the graph says what a step sends:\n%s", traffic_table(self.report))

  def before_run(self, run_context):
    if self._count_steps() != self.steps:
      self._note_steps(self._count_steps())
    self._run_began = time.perf_counter()
    if self._began is None:
      self._began = self._run_began
    self._runs += 1
    self._traced = self._is_due()
    return tf.train.SessionRunArgs(None, options=tf.RunOptions(
      trace_level=tf.RunOptions.FULL_TRACE)) if self._traced else None

  def after_run(self, run_context, run_values):
    seconds = time.perf_counter() - self._run_began
    if not self._traced:
      self._times.append(seconds)
      return
    usual = statistics.median(self._times)
    self._read(run_values.run_metadata, usual)
    now = time.perf_counter()
    cost = max(0.0, now - self._run_began - usual)
    self.cost += cost
    self._next = now + max(self._every_secs, cost / self._max_cost)
    _log.debug("tracing a step took %.1f ms more than its %.1f", 1e3 * cost, 1e3 * usual)

  def _note_steps(self, steps):
    """Expects runs of another number of steps; each step still sends the same messages."""
    graph, before = self._graph, self.steps
    if steps % before == 0:
      self._graph = StepTraffic(graph.messages * (steps // before), steps)
    elif before % steps == 0:
      self._graph = StepTraffic(graph.messages[:len(graph.messages) * steps // before], steps)
    self.steps, self.shares = steps, []
    self._times.clear()

  def __str__(self):
    """The report for the last line; "" if workers and ps exchange no messages."""
    if self.report is None or not self.report.by_ps:
      return ""
    mean = " (%s)" % str(_mean(self.shares)) if self.shares else ""
    return str(self.report) + mean

  def _is_due(self):
    if self._runs < self._first_run or not self._times or (
        self._tracker.run_steps != self.steps):  # a job's last runs may be shorter
      return False
    if self._next is None:
      cost = _FIRST_COST[0] + _FIRST_COST[1] * statistics.median(self._times)
      self._next = self._began + cost / self._max_cost
    return time.perf_counter() >= self._next

  def _read(self, metadata, usual):
    trace = read_trace(metadata)
    if not trace.ops:
      return
    shares = time_shares(trace, usual)
    self.shares.append(shares)
    self.report = merge_trace(self._graph, sent_messages(trace, self.steps))
    _log.debug("a traced step: %s\n%s", shares, traffic_table(self.report))
    if self._directory is not None:
      write_summary(self._directory, _summary(self.report, shares), self._tracker.value)


def _mean(shares) -> TimeShares:
  return TimeShares(*[statistics.mean(values) for values in zip(*shares)])


def _summary(report, shares) -> tf.Summary:
  values = dict(shares.named())
  totals = [("", (report.down, report.up))]
  totals += [(name[1:].replace(":", "_").replace("/", "_") + "/", both)
             for name, both in report.by_ps.items()]
  for prefix, both in totals:
    for way, total in zip(("down", "up"), both):
      values["%sbytes_%s" % (prefix, way)] = total.bytes
      values["%smessages_%s" % (prefix, way)] = total.messages
  return tf.Summary(value=[tf.Summary.Value(tag=TAG + name, simple_value=value)
                           for name, value in values.items()])
