"""Divides the time of a traced run.

Each moment belongs to the first of these phases that applies:

computing  an operation runs on a worker
pulling    a tensor of a ps travels to a worker, or a ps runs an operation that needs no tensor of
           a worker: a read of a variable, the concat of a bucket
pushing    a tensor of a worker travels to a ps or another worker, or a ps runs an operation that
           needs such a tensor: the update
waiting    none of these: the run waits for a batch, a queue, other workers, or the messages that
           begin and end a run on each ps

An operation that blocks (a dequeue, an iterator's next batch, a barrier) waits and does not
compute. A transfer during computation counts as computing. `waits` says for which operation the run
waited. If there is no such operation, the run waited for messages.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional, Tuple

from tf1ps.transfer.step_trace import Ran, Trace, on_one_clock
from tf1ps.transfer.traffic import PS

Spans = List[Tuple[float, float]]  # (start, end), in microseconds
LARGE = 1 << 16  # bytes; a smaller message costs about as much as an empty message
_RECEIVED = re.compile(r"_S\d+$")  # the name of what another task's operation made
_BLOCKS = re.compile(r"Dequeue|Enqueue|GetNext|Barrier|TakeGradient|TakeMany|Unstage|^Stage$|"
                     r"Reader|PyFunc|Collective|Mutex|^_?(Host)?(Send|Recv)$")
# A worker's own queues and iterators are its input, except for the queues of an all-reduce's
# messages (replication/collectives.py). Python code (PyFunc) may or may not be input.
_BATCH = re.compile(r"Dequeue|GetNext|Reader")
_OF_PEERS = "peer_messages"


class TimeShares(NamedTuple):
  """The shares of the time of a run; the sum of the first four is 1."""

  pulling: float
  computing: float
  pushing: float
  waiting: float
  seconds: float  # the time of the run
  input: float = 0.0  # the part of waiting for the worker's next batch
  blocked: float = 0.0  # the part of waiting for another operation: a queue, a round of updates
  large: float = 0.0  # the part of pulling and pushing while a tensor of 64 KB or more travels
  on_ps: float = 0.0  # the part of both while no tensor travels, and a ps runs operations

  def named(self):
    """Returns [("pulling", its share), ...]."""
    return list(zip(self._fields[:4], self[:4]))

  def __str__(self):
    return ", ".join("%.0f %% %s" % (100 * share, name) for name, share in self.named())


class Idle(NamedTuple):
  """A part of a run in which nothing ran or travelled."""

  op: Optional[Ran]  # the operation that blocked; None: the run waited for messages
  start: float  # microseconds
  end: float

  @property
  def is_input(self) -> bool:
    """Whether the run waited for the worker's next batch."""
    return (self.op is not None and not self.op.task.startswith(PS)
            and bool(_BATCH.search(self.op.type)) and _OF_PEERS not in self.op.name)


def blocks(op: Ran) -> bool:
  """Whether the operation waits for something while it runs."""
  return bool(_BLOCKS.search(op.type))


def phases(trace: Trace) -> Dict[str, Spans]:
  """Returns {"computing": spans, "pulling": ..., "pushing": ...}; spans of phases may overlap."""
  computing: Spans = []
  pulling: Spans = []
  pushing: Spans = []
  of_workers = _needing_workers(trace)
  for op in trace.ops:
    if not blocks(op):
      spans = (computing if not op.task.startswith(PS) else
               pushing if (op.task, op.name) in of_workers else pulling)
      spans.append((op.start, op.end))
  for transfer in trace.transfers:
    is_pull = transfer.source.startswith(PS) and not transfer.destination.startswith(PS)
    (pulling if is_pull else pushing).append((transfer.sent, transfer.arrived))
  return dict(computing=computing, pulling=pulling, pushing=pushing)


def waits(trace: Trace, began: Optional[float] = None, ended: Optional[float] = None
          ) -> List[Idle]:
  """Returns the parts of a run in which nothing ran or travelled, in order.

  If several operations block at the same time, a part belongs to the operation that ends first,
  because the run continues after it.

  Args:
    trace: the traced run, on one clock.
    began, ended: the start and end of the run in microseconds; None: the start of the first
      operation and the end of the last operation.
  """
  first, last = _limits(trace)
  gaps = _gaps([span for spans in phases(trace).values() for span in spans],
               first if began is None else min(began, first),
               last if ended is None else max(ended, last))
  blocking = sorted((op for op in trace.ops if blocks(op)), key=lambda op: op.end)
  parts: List[Idle] = []
  for start, end in gaps:
    cuts = sorted({start, end}.union(*(
      {moment for moment in (op.start, op.end) if start < moment < end} for op in blocking)))
    for left, right in zip(cuts, cuts[1:]):
      op = next((op for op in blocking if op.start <= left and op.end >= right), None)
      if parts and parts[-1].op is op and parts[-1].end == left:
        parts[-1] = parts[-1]._replace(end=right)
      else:
        parts.append(Idle(op, left, right))
  return parts


def time_shares(trace: Trace, seconds: Optional[float] = None) -> TimeShares:
  """Divides the time of a traced run; raises ValueError if the trace is empty.

  `seconds` is the time of a run without a trace, if known: time without traced operations and
  transfers is waiting. None: the time from the first operation to the last.
  """
  if not trace.ops:
    raise ValueError("no operation was traced. Run with trace_level=tf.RunOptions.FULL_TRACE")
  trace = on_one_clock(trace)
  by_phase = phases(trace)
  compute, pull, push = _one_by_one([by_phase[name] for name in (
    "computing", "pulling", "pushing")])
  _, large, small = _one_by_one([by_phase["computing"]] + [
    [(transfer.sent, transfer.arrived) for transfer in trace.transfers
     if (transfer.bytes >= LARGE) == is_large]
    for is_large in (True, False)])
  first, last = _limits(trace)
  whole = max(last - first, 1e6 * (seconds or 0.0), 1.0)
  blocking = [wait for wait in waits(trace) if wait.op is not None]
  batch = sum(wait.end - wait.start for wait in blocking if wait.is_input)
  blocked = sum(wait.end - wait.start for wait in blocking) - batch
  compute, pull, push, large, small, batch, blocked = (
    part / whole for part in (compute, pull, push, large, small, batch, blocked))
  return TimeShares(pull, compute, push, max(0.0, 1.0 - pull - compute - push), 1e-6 * whole,
                    batch, blocked, large, max(0.0, pull + push - large - small))


def _needing_workers(trace) -> set:
  """Returns {(task, name)} of the operations on ps that need something from a worker."""
  from_workers = {(transfer.destination, transfer.name) for transfer in trace.transfers
                  if not transfer.source.startswith(PS)}
  places: Dict[str, list] = {}
  for op in trace.ops:
    places.setdefault(op.name, []).append(op.task)
  needing: set = set()
  for op in sorted(trace.ops, key=lambda op: op.start):  # needed operations ran before
    for name in op.needs:
      here = (op.task, name)
      made = _RECEIVED.sub("", name)
      if here in needing or (made != name and ((op.task, made) in from_workers or any(
          (task, made) in needing for task in places.get(made, [])))):
        needing.add((op.task, op.name))
  return needing


def _limits(trace):
  """Returns the start of the first operation or transfer, and the end of the last."""
  spans = [(op.start, op.end) for op in trace.ops]
  spans += [(transfer.sent, transfer.arrived) for transfer in trace.transfers]
  return min(start for start, _ in spans), max(end for _, end in spans)


def _one_by_one(groups) -> List[float]:
  """Returns the time of each group of spans without the time of the groups before it."""
  taken: Spans = []
  parts = []
  for spans in groups:
    before = _length(taken)
    taken = _union(taken + spans)
    parts.append(_length(taken) - before)
  return parts


def _gaps(spans, first, last) -> Spans:
  edges = [first] + [edge for span in _union(spans) for edge in span] + [last]
  return [(start, end) for start, end in zip(edges[::2], edges[1::2]) if end > start]


def _union(spans) -> Spans:
  """Returns the spans in order, with overlapping spans merged."""
  merged: Spans = []
  for start, end in sorted(span for span in spans if span[1] > span[0]):
    if merged and start <= merged[-1][1]:
      merged[-1] = merged[-1][0], max(end, merged[-1][1])
    else:
      merged.append((start, end))
  return merged


def _length(spans):
  return sum(end - start for start, end in spans)
