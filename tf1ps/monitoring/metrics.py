"""The metrics of a task for Prometheus.

`TABLE` describes each metric once: /metrics and docs/monitoring.md follow from it. The values come
from the task's heartbeat (`Heartbeat.own`) and from its figures (`WorkerFigures`). The thread of a
scrape reads the values, so they cost a step nothing. All counters count from the start of the
process: Prometheus interprets a lower value as a restart.

Names follow Prometheus: the prefix tf1ps_, base units, _total for counters. Each metric has the
labels job ("worker"), role ("chief"), index ("0") and run, the id of the job's run, which is empty
until the task knows it.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from tf1ps import version
from tf1ps.monitoring.figures import EvaluatorFigures, WorkerFigures

PREFIX = "tf1ps_"
LABELS = ("job", "role", "index", "run")
COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
_AGE_BUCKETS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
EVERY, TASKS, TRAINING, CHIEF, PS, EVALUATOR = (
  "every task", "ps and workers", "workers", "chief", "ps", "evaluator")


class View(NamedTuple):
  """The values for a scrape."""

  is_ready: bool
  member: object = None  # the `state.Member` of this task, or None
  figures: Optional[WorkerFigures] = None
  evaluator: Optional[EvaluatorFigures] = None
  silence: Optional[float] = None  # seconds since the heartbeats' control task last answered
  states: Dict[str, int] = {}  # {state: tasks of the job}

  @property
  def run(self) -> str:
    """The id of the run of the job; "" if it is not known."""
    if self.evaluator is not None:
      return self.evaluator.run
    return "" if self.member is None else self.member.run

  def belongs_to(self, tasks: str) -> bool:
    """Whether this task has a metric whose `Metric.tasks` is `tasks`."""
    if self.member is None or tasks in (EVERY, EVALUATOR):
      return tasks == EVERY or tasks == EVALUATOR and self.evaluator is not None
    is_ps = self.member.role == "ps"
    return (tasks == TASKS or tasks == PS and is_ps
            or tasks == TRAINING and self.figures is not None
            or tasks == CHIEF and self.figures is not None and self.member.role == "chief")


_Values = Iterator[Tuple[tuple, float]]


class Metric(NamedTuple):
  """A metric of the table."""

  name: str  # with its unit; without the prefix, and without _total
  kind: str
  help: str
  tasks: str  # the tasks that have the metric
  values: Callable[[View], _Values]  # yields (values of the further labels, value)
  labels: Tuple[str, ...] = ()  # the further labels

  @property
  def full_name(self) -> str:
    """The name of its samples, without the endings of a histogram."""
    return PREFIX + self.name + ("_total" if self.kind == COUNTER else "")


def _single(value: Callable[[View], object]) -> Callable[[View], _Values]:
  """Returns the values of a metric with a single value; None leaves the metric out."""
  def values(view):
    number = value(view)
    if number is not None:
      yield (), float(number)
  return values


def _per_ps(bytes_: bool):
  def values(view):
    for name, (down, messages_down, up, messages_up) in view.figures.traffic.items():
      ps = name.rsplit(":", 1)[1]
      yield (ps, "sent"), down if bytes_ else messages_down
      yield (ps, "received"), up if bytes_ else messages_up
  return values


def _from_zero(value):
  return None if value < 0 else value


TABLE: Tuple[Metric, ...] = (
  Metric("ready", GAUGE, "1 where /readyz answers 200, else 0.", EVERY,
         _single(lambda view: view.is_ready)),
  Metric("steps", COUNTER, "Training steps of the worker.", TRAINING,
         _single(lambda view: view.figures.steps)),
  Metric("examples", COUNTER, "Examples that the worker has trained on.", TRAINING,
         _single(lambda view: view.figures.examples)),
  Metric("late_examples", COUNTER, "Examples whose gradients came too late for an update.",
         TRAINING, _single(lambda view: view.figures.late_examples)),
  Metric("dropped_gradients", COUNTER, "Gradients that were not applied.", TRAINING,
         _single(lambda view: view.figures.dropped)),
  Metric("skipped_records", COUNTER, "Bad records that the worker has skipped.", TRAINING,
         _single(lambda view: view.figures.skipped)),
  Metric("global_step", GAUGE, "The last global step that the worker has read.", TRAINING,
         _single(lambda view: _from_zero(view.member.global_step))),
  Metric("loss", GAUGE, "The loss of the worker's last step.", TRAINING,
         _single(lambda view: view.figures.loss)),
  Metric("gradient_age_steps", HISTOGRAM, "The ages of the applied asynchronous gradients, in "
         "global steps.", TRAINING, lambda view: iter(())),
  Metric("recoveries", COUNTER, "Sessions of the worker after its first.", TRAINING,
         _single(lambda view: max(0, view.figures.sessions - 1))),
  Metric("stalled", GAUGE, "1 while the worker's step lasts much longer than those before, or "
         "longer than --stall_after.", TRAINING,
         _single(lambda view: bool(view.member.blocked or view.figures.stalled))),
  Metric("checkpoints", COUNTER, "Checkpoints that the chief has saved.", CHIEF,
         _single(lambda view: view.figures.checkpoints)),
  Metric("last_checkpoint_step", GAUGE, "The global step of the last checkpoint.", CHIEF,
         _single(lambda view: _from_zero(view.figures.checkpoint_step))),
  Metric("last_checkpoint_timestamp_seconds", GAUGE, "When the last checkpoint was saved, in "
         "seconds since the epoch.", CHIEF,
         _single(lambda view: time.time() - view.figures.checkpoint_age
                 if view.figures.checkpoint_step >= 0 else None)),
  Metric("rolled_back_steps", COUNTER, "Global steps that were lost with ps, as far as the chief "
         "knows.", CHIEF, _single(lambda view: view.figures.rolled_back)),
  Metric("step_bytes", GAUGE, "Bytes that a ps sends and receives for one step of the chief.",
         CHIEF, _per_ps(True), ("ps", "direction")),
  Metric("step_messages", GAUGE, "Messages that a ps sends and receives for one step of the chief.",
         CHIEF, _per_ps(False), ("ps", "direction")),
  Metric("heartbeat_silence_seconds", GAUGE, "Seconds since the task that keeps the heartbeats has "
         "answered.", TASKS, _single(lambda view: view.silence)),
  Metric("tasks", GAUGE, "Tasks of the job by their state, as this task sees them.", TASKS,
         lambda view: (((state,), count) for state, count in sorted(view.states.items())),
         ("state",)),
  Metric("clients", GAUGE, "Connections to the ps of clients that are not tasks of the job.", PS,
         _single(lambda view: view.member.connections)),
  Metric("evaluations", COUNTER, "Checkpoints that the evaluator has evaluated.", EVALUATOR,
         _single(lambda view: view.evaluator.evaluations)),
  Metric("evaluated_step", GAUGE, "The global step of the last evaluated checkpoint.", EVALUATOR,
         _single(lambda view: view.evaluator.global_step)),
  Metric("evaluation", GAUGE, "A metric of the program on the last evaluated checkpoint.",
         EVALUATOR, lambda view: (((name,), value) for name, value in sorted(
           view.evaluator.metrics.items())), ("metric",)),
)


class Collector:
  """Collects the metrics of this process's task for prometheus_client."""

  def __init__(self, labels: Tuple[str, str, str], look: Callable[[], View]):
    """Takes the job, role and index of the task, and a function that returns its `View`."""
    self._task, self._look = [str(label) for label in labels], look

  def describe(self) -> list:
    """Returns [], because a registration must not read the values of the task."""
    return []

  def collect(self) -> Iterator[object]:
    """Yields the families of metrics as of now."""
    from prometheus_client.core import InfoMetricFamily

    view = self._look()
    labels = [*self._task, view.run]
    info = InfoMetricFamily(PREFIX + "build", "The version of tf1ps.", labels=list(LABELS))
    info.add_metric(labels, {"version": version.__version__})
    yield info
    for metric in TABLE:
      if view.belongs_to(metric.tasks):
        yield self._family(metric, view, labels)

  def _family(self, metric: Metric, view: View, labels: List[str]):
    from prometheus_client.core import (
      CounterMetricFamily,
      GaugeMetricFamily,
      HistogramMetricFamily,
    )

    kinds = {COUNTER: CounterMetricFamily, GAUGE: GaugeMetricFamily,
             HISTOGRAM: HistogramMetricFamily}
    family = kinds[metric.kind](PREFIX + metric.name, metric.help, labels=[*LABELS, *metric.labels])
    if metric.kind == HISTOGRAM:
      if view.figures.ages is not None:
        family.add_metric(labels, _buckets(view.figures.ages.counts),
                          sum_value=view.figures.ages.total)
      return family
    for values, number in metric.values(view):
      family.add_metric([*labels, *values], number)
    return family


def _buckets(counts: Dict[int, int]) -> List[Tuple[str, float]]:
  """Returns the cumulative buckets of a histogram."""
  buckets = [(str(float(limit)), float(sum(n for age, n in counts.items() if age <= limit)))
             for limit in _AGE_BUCKETS]
  return [*buckets, ("+Inf", float(sum(counts.values())))]


def metrics_table() -> str:
  """Returns the table of docs/monitoring.md."""
  lines = ["|metric|kind|tasks|further labels|meaning|", "|-|-|-|-|-|",
           "|`tf1ps_build_info`|info|every task|version|The version of tf1ps.|"]
  for metric in TABLE:
    lines.append("|`%s`|%s|%s|%s|%s|" % (
      metric.full_name, metric.kind, metric.tasks, ", ".join(metric.labels), metric.help))
  return "\n".join(lines)
