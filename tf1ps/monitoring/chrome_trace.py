"""Makes a Chrome trace of traced runs: the JSON that chrome://tracing and ui.perfetto.dev open.

A process of the trace has the operations of a device, the tensors that a task sends and receives,
or the runs of the worker's session. It has as many rows ("threads") as events that overlap. An
arrow leads from the sending of a tensor to its receipt. Times are microseconds since the first
event, for all tasks by the same clock.
"""

from __future__ import annotations

import collections
import re
from typing import Dict, List, NamedTuple, Sequence

from tf1ps.transfer import Trace, blocks, format_bytes, phases, waits

RUNS, TENSORS = "runs", "tensors"
_TASK = re.compile(r"/job:([^/]+)(?:/.*)?/task:(\d+)")


class TracedRun(NamedTuple):
  """A traced run of a worker's session."""

  step: int  # the first of the worker's own steps in the run, counted from 0
  steps: int  # the number of steps in the run
  began: float  # microseconds since the epoch, by the worker's clock
  ended: float
  trace: Trace  # by one clock


def task_name(task: str) -> str:
  """Returns the short name of a task: "ps 0" for "/job:ps/task:0"."""
  match = _TASK.search(task)
  return "%s %s" % match.groups() if match else task


def make_chrome_trace(runs: Sequence[TracedRun], worker: str) -> dict:
  """Returns the trace as an object for `json.dumps`.

  Args:
    runs: the runs, at least one.
    worker: the name of the session's task, "/job:worker/task:0".
  """
  rows = _Rows()
  for run in runs:
    _add_run(rows, run, worker)
  return {"traceEvents": rows.events(), "displayTimeUnit": "ms"}


class _Rows:
  """Collects the events of each process, and puts them into rows."""

  def __init__(self):
    # {(task, device): [(start, end, event), ...]}
    self._slices: Dict[tuple, list] = collections.defaultdict(list)
    self._arrows = 0

  def add(self, task, device, start, end, name, kind, **details):
    """Adds a slice; returns its event, which gets its row and time later."""
    event = {"ph": "X", "name": name, "cat": kind, "args": details}
    self._slices[task, device].append((start, max(start, end), event))
    return event

  def add_arrow(self, source, destination):
    self._arrows += 1
    source["arrow"], destination["arrow"] = ("s", self._arrows), ("f", self._arrows)

  def events(self) -> List[dict]:
    """Returns the events that name the rows, and then all other events in the order of time."""
    zero = min(start for slices in self._slices.values() for start, _, _ in slices)
    names, events = [], []
    for pid, (place, slices) in enumerate(sorted(self._slices.items(), key=_order), 1):
      task, device = place
      label = "%s, %s" % (task_name(task), device)
      names += [_meta("process_name", pid, 0, name=label),
                _meta("process_sort_index", pid, 0, sort_index=pid)]
      free: List[float] = []  # when each row is free again
      for start, end, event in sorted(slices, key=lambda piece: piece[:2]):
        row = next((row for row, moment in enumerate(free) if moment <= start), len(free))
        if row == len(free):
          free.append(end)
          names.append(_meta("thread_name", pid, row, name="%s (%d)" % (device, row + 1)))
        free[row] = end
        events += _placed(event, pid, row, start - zero, end - zero)
    return names + sorted(events, key=lambda event: event["ts"])


def _order(item):
  """Sorts runs first, then workers, then ps, by their indices and devices."""
  (task, device), _ = item
  name = task_name(task)
  job, _, index = name.rpartition(" ")
  return device != RUNS, job == "ps", job, int(index) if index.isdigit() else 0, device


def _meta(kind, pid, tid, **details):
  return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0, "args": details}


def _placed(event, pid, tid, start, end) -> List[dict]:
  arrow = event.pop("arrow", None)
  placed = [dict(event, pid=pid, tid=tid, ts=start, dur=end - start)]
  if arrow is not None:
    way, number = arrow
    placed.append({"ph": way, "id": number, "name": "tensor", "cat": "tensor", "pid": pid,
                   "tid": tid, "ts": start, **({"bp": "e"} if way == "f" else {})})
  return placed


def _add_run(rows, run, worker):
  label = "step %d" % run.step
  if run.steps > 1:
    label = "steps %d to %d" % (run.step, run.step + run.steps - 1)
  rows.add(worker, RUNS, run.began, run.ended, label, "run",
           steps=run.steps, **{name: "%.3f ms" % (1e-3 * sum(b - a for a, b in spans))
                               for name, spans in phases(run.trace).items()})
  for op in run.trace.ops:
    rows.add(op.task, op.device or "CPU:0", op.start, op.end, op.type or op.name,
             "wait" if blocks(op) else "operation", operation=op.name, inputs=op.needs, step=label)
  for transfer in run.trace.transfers:
    details = {"tensor": transfer.name, "bytes": transfer.bytes, "from": task_name(transfer.source),
               "to": task_name(transfer.destination), "step": label}
    size = format_bytes(transfer.bytes)
    rows.add_arrow(*(
      rows.add(task, TENSORS, transfer.sent, transfer.arrived, way + size, "tensor", **details)
      for task, way in ((transfer.source, "send "), (transfer.destination, "receive "))))
  for wait in waits(run.trace, run.began, run.ended):
    about = "messages" if wait.op is None else "%s on %s" % (wait.op.name, task_name(wait.op.task))
    rows.add(worker, "waits", wait.start, wait.end, about, "wait", step=label)
