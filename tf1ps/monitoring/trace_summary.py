"""Makes the text page beside a Chrome trace: the longest operations, and the waits of the steps."""

from __future__ import annotations

import collections
import statistics
from typing import Dict, List, Sequence

from tf1ps.monitoring.chrome_trace import TracedRun, task_name
from tf1ps.transfer import blocks, format_bytes, time_shares, waits

_LONGEST = 10
_WIDTH = 60  # the characters of a name


def summarize_trace(runs: Sequence[TracedRun], worker: str) -> str:
  """Returns the lines of the page.

  Args:
    runs: the traced runs, at least one.
    worker: the name of the session's task, "/job:worker/task:0".
  """
  times = [1e-3 * (run.ended - run.began) for run in runs]
  lines = ["%s, steps %d to %d: %d traced runs of %.2f ms (%.2f to %.2f)" % (
    task_name(worker), runs[0].step, runs[-1].step + runs[-1].steps - 1, len(runs),
    statistics.median(times), min(times), max(times)),
    "of their time: %s" % _shares(runs), "",
    "All figures are means per run, in milliseconds. A traced run takes longer than others."]
  for title, rows in (
      ("waited for", _waits(runs)), ("longest operations", _operations(runs)),
      ("longest transfers", _transfers(runs))):
    lines += ["", title + ":"]
    for milliseconds, text in rows[:_LONGEST]:
      lines.append("%10.3f  %s" % (milliseconds, text))
    if not rows:
      lines.append("            nothing")
    if len(rows) > _LONGEST:
      lines.append("%10.3f  %d more" % (
        sum(milliseconds for milliseconds, _ in rows[_LONGEST:]), len(rows) - _LONGEST))
  return "\n".join(lines) + "\n"


def _shares(runs) -> str:
  shares = [time_shares(run.trace, 1e-6 * (run.ended - run.began)) for run in runs]
  return str(shares[0]._make(statistics.mean(values) for values in zip(*shares)))


def _waits(runs):
  durations: Dict[str, float] = collections.Counter()
  for run in runs:
    for wait in waits(run.trace, run.began, run.ended):
      if wait.op is not None:
        text = "%s: %s" % ("the next batch" if wait.is_input else wait.op.type, _place(
          wait.op.name, wait.op.task))
      elif wait.start <= run.began:
        text = "messages that begin a run"
      elif wait.end >= run.ended:
        text = "messages that end a run"
      else:
        text = "messages between operations"
      durations[text] += wait.end - wait.start
  return _sorted(durations, len(runs))


def _operations(runs):
  durations: Dict[tuple, List[float]] = collections.defaultdict(list)
  for run in runs:
    for op in run.trace.ops:
      if not blocks(op):
        durations[op.name, op.type, op.task, op.device].append(op.end - op.start)
  return _sorted({
    "%s: %s %s%s" % (kind or "operation", _place(name, task), device,
                     _times(len(spans), len(runs))): sum(spans)
    for (name, kind, task, device), spans in durations.items()}, len(runs))


def _transfers(runs):
  durations: Dict[tuple, List[float]] = collections.defaultdict(list)
  sizes: Dict[tuple, int] = collections.Counter()
  for run in runs:
    for transfer in run.trace.transfers:
      key = transfer.name, transfer.source, transfer.destination
      durations[key].append(transfer.arrived - transfer.sent)
      sizes[key] += transfer.bytes
  return _sorted({
    "%s: %s, %s to %s%s" % (
      format_bytes(sizes[key] / len(spans)), _short(key[0]), task_name(key[1]), task_name(key[2]),
      _times(len(spans), len(runs))): sum(spans) for key, spans in durations.items()}, len(runs))


def _sorted(durations, runs):
  """Returns [(milliseconds per run, text), ...], the longest first."""
  return sorted(((1e-3 * duration / runs, text) for text, duration in durations.items()),
                reverse=True)


def _times(count, runs) -> str:
  return "" if count <= runs else ", %.3g times per run" % (count / runs)


def _place(name, task) -> str:
  return "%s on %s" % (_short(name), task_name(task))


def _short(name) -> str:
  return name if len(name) <= _WIDTH else "..." + name[3 - _WIDTH:]
