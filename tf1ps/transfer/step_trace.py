"""Reads from one traced run the messages that it sent, and the shares of its time.

`session.run(..., tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)` notes when each
operation ran, on every task, and each tensor that one task got from another, with its bytes.
`sent_messages` makes a `StepTraffic` of it. `time_shares` divides the time of the run. Each moment
belongs to the first of these that is true:

computing  an operation runs on a worker
pulling    a tensor of a ps travels to a worker, or a ps runs an operation that needs nothing of a
           worker: a read of a variable, the concat of a bucket
pushing    a tensor of a worker travels to a ps, or a ps runs an operation that needs one: the
update waiting    none of these: for a queue, for data, for other workers, for the messages that
begin and end
           a run on each ps

An operation that blocks (a dequeue, an iterator's next batch, a barrier) waits and does not
compute. A transfer during computation counts as computing. TensorFlow notes both ends of a transfer
by the clock of the receiver. The operations of a ps are noted by the clock of the ps, which is the
worker's clock on one machine and another clock on another machine. If a tensor arrived before it
was made by these clocks, the ps's clock is corrected so that the fastest transfers in both
directions take the same time.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.graph import task_of_device
from tf1ps.transfer import traffic
from tf1ps.transfer.traffic import PS

_TRANSFER = "RecvTensor"
# "[256B] [2.79Mb/s] edge_9_b/read from /job:ps/... to /job:worker/..."
_LABEL = re.compile(r"(?:edge_\d+_)?(\S+) from (\S+) to (\S+)$")
_CALL = re.compile(r" = (\w+)\((.*)\)$", re.DOTALL)
_RECEIVED = re.compile(r"_S\d+$")  # the name of what another task's operation made
_BLOCKS = re.compile(r"Dequeue|Enqueue|GetNext|Barrier|TakeGradient|TakeMany|Unstage|^Stage$|"
                     r"Reader|PyFunc|Collective|^_?(Host)?(Send|Recv)$")


class TimeShares(NamedTuple):
  """The shares of the time of a run; their sum is 1."""

  pulling: float
  computing: float
  pushing: float
  waiting: float
  seconds: float  # the time of the run

  def named(self):
    """Returns [("pulling", its share), ...]."""
    return list(zip(self._fields[:4], self[:4]))

  def __str__(self):
    return ", ".join("%.0f %% %s" % (100 * share, name) for name, share in self.named())


class Transfer(NamedTuple):
  """A tensor that one task got from another in a traced run; times in microseconds."""

  name: str  # the operation that made it
  bytes: int
  source: str  # the task that sent it
  destination: str  # the task that needed it
  sent: float
  arrived: float


class Ran(NamedTuple):
  """An operation of a traced run; times in microseconds by its task's clock."""

  name: str
  type: str
  needs: List[str]  # the operations of its inputs; those of other tasks end with "_S9"
  task: str
  start: float
  end: float


class Trace(NamedTuple):
  """A traced run."""

  transfers: List[Transfer]
  ops: List[Ran]


def read_trace(metadata: tf.RunMetadata) -> Trace:
  """Reads the metadata of a run with `trace_level=FULL_TRACE`."""
  transfers, ops = [], []
  for device in metadata.step_stats.dev_stats:
    if not device.device.startswith("/job:"):
      continue  # the same operations again
    task = task_of_device(device.device)
    for node in device.node_stats:
      start = node.all_start_micros
      if node.node_name == _TRANSFER:
        label = _LABEL.search(node.timeline_label)
        if label is not None and node.output:
          allocation = node.output[0].tensor_description.allocation_description
          transfers.append(Transfer(
            label.group(1), allocation.requested_bytes,
            task_of_device(label.group(2)), task_of_device(label.group(3)),
            start, start + node.all_end_rel_micros))
      elif node.node_name != "_SOURCE":
        ops.append(Ran(node.node_name, *_call(node.timeline_label), task,
                       start + node.op_start_rel_micros, start + node.op_end_rel_micros))
  return Trace(transfers, ops)


def sent_messages(trace: Trace, steps: int = 1) -> traffic.StepTraffic:
  """Returns the messages of a traced run, with the actual sizes of the tensors.

  A message of 0 bytes is a signal, an empty tensor, or a tensor of a branch that was not taken. The
  trace may lack tensors that arrived on a ps in its first moments, and it lacks tensors that were
  fetched from a ps.
  """
  return traffic.StepTraffic([
    traffic.Message(one.name if one.bytes else "^" + one.name, one.source, one.destination,
                    one.bytes, traffic.RUN) for one in trace.transfers], steps)


def time_shares(trace: Trace, seconds: Optional[float] = None) -> TimeShares:
  """Divides the time of a traced run; raises ValueError if the trace is empty.

  `seconds` is the time of a run without a trace, if known: time without traced operations and
  transfers is waiting. None: the time from the first operation to the last.
  """
  if not trace.ops:
    raise ValueError("no operation was traced. Run with trace_level=tf.RunOptions.FULL_TRACE")
  trace = _on_one_clock(trace)
  computing, pulling, pushing = [], [], []
  of_workers = _needing_workers(trace)
  for op in trace.ops:
    if not _BLOCKS.search(op.type):
      spans = (computing if not op.task.startswith(PS) else
               pushing if (op.task, op.name) in of_workers else pulling)
      spans.append((op.start, op.end))
  for one in trace.transfers:
    is_pull = one.source.startswith(PS) and not one.destination.startswith(PS)
    (pulling if is_pull else pushing).append((one.sent, one.arrived))
  taken, parts = [], []
  for spans in (computing, pulling, pushing):
    before = _length(taken)
    taken = _union(taken + spans)
    parts.append(_length(taken) - before)
  spans = [(one.start, one.end) for one in trace.ops]
  spans += [(one.sent, one.arrived) for one in trace.transfers]
  first, last = min(start for start, _ in spans), max(end for _, end in spans)
  whole = max(last - first, 1e6 * (seconds or 0.0), 1.0)
  compute, pull, push = (part / whole for part in parts)
  return TimeShares(pull, compute, push, max(0.0, 1.0 - pull - compute - push), 1e-6 * whole)


def _call(label):
  """Returns (type, names of inputs) of "name = Type(input:1, ^other)"."""
  found = _CALL.search(label)
  if found is None:
    return "", []
  return found.group(1), [name.strip().lstrip("^").split(":")[0]
                          for name in found.group(2).split(",") if name.strip()]


def _needing_workers(trace) -> set:
  """Returns {(task, name)} of the operations on ps that need something from a worker."""
  from_workers = {(one.destination, one.name) for one in trace.transfers
                  if not one.source.startswith(PS)}
  places: Dict[str, list] = {}
  for op in trace.ops:
    places.setdefault(op.name, []).append(op.task)
  found: set = set()
  for op in sorted(trace.ops, key=lambda op: op.start):  # needed operations ran before
    for name in op.needs:
      here = (op.task, name)
      made = _RECEIVED.sub("", name)
      if here in found or (made != name and ((op.task, made) in from_workers or any(
          (task, made) in found for task in places.get(made, [])))):
        found.add((op.task, op.name))
  return found


def _union(spans):
  """Returns the spans in order, with overlapping ones merged."""
  merged = []
  for start, end in sorted(span for span in spans if span[1] > span[0]):
    if merged and start <= merged[-1][1]:
      merged[-1] = merged[-1][0], max(end, merged[-1][1])
    else:
      merged.append((start, end))
  return merged


def _length(spans):
  return sum(end - start for start, end in spans)


def _on_one_clock(trace) -> Trace:
  """Corrects the clock of each ps by a worker's clock, if its times are impossible."""
  ends = {(op.task, op.name): op.end for op in trace.ops}
  ways: Dict[tuple, float] = {}  # the shortest transfer by (source, destination)
  for one in trace.transfers:
    if (one.source, one.name) in ends:
      way, took = (one.source, one.destination), one.arrived - ends[one.source, one.name]
      ways[way] = min(took, ways.get(way, took))
  ahead: Dict[str, float] = {}
  for (source, destination), down in ways.items():
    up = ways.get((destination, source))
    if source.startswith(PS) and not destination.startswith(PS):
      if up is None:
        ahead[source] = min(0.0, down)
      elif min(down, up) < 0:
        ahead[source] = (down - up) / 2

  def moved(one, task, *names):
    return one._replace(**{name: getattr(one, name) + ahead.get(task, 0.0) for name in names})

  return Trace([moved(one, one.destination, "sent", "arrived") for one in trace.transfers],
               [moved(op, op.task, "start", "end") for op in trace.ops])
