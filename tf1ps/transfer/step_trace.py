"""What one traced run really sent, and what its time went to.

`session.run(..., tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)` notes when each
operation ran, on every task, and each tensor that one task got from another, with its bytes.
`sent_messages` makes a `StepTraffic` of it. `time_shares` divides the time of the run. Each moment
belongs to the first of these that is true:

computing  an operation runs on a worker
pulling    a tensor of a ps is on its way to a worker, or a ps runs what needs nothing of a worker:
           the reads of variables, the concat of a packed message
pushing    a tensor of a worker is on its way to a ps, or a ps runs what needs one: the update
waiting    none of them: for a queue, for data, for other workers; for the messages that begin a
           run on each ps and tell that it has ended

An operation that blocks (a dequeue, an iterator's next batch, a barrier) waits and does not
compute. A transfer that hides behind computing counts as computing. TensorFlow notes a transfer by
the clock of who received it, who was told when it was sent. The operations of a ps are
by the clock of the ps, which is another one only on another machine: where it says that a tensor
came before it was made, it is set so that the shortest ways there and back take the same time.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.transfer import placed, traffic

_TRANSFER = "RecvTensor"
# "[256B] [2.79Mb/s] edge_9_b/read from /job:ps/... to /job:worker/..."
_LABEL = re.compile(r"(?:edge_\d+_)?(\S+) from (\S+) to (\S+)$")
_CALL = re.compile(r" = (\w+)\((.*)\)$", re.DOTALL)
_RECEIVED = re.compile(r"_S\d+$")  # the name of what another task's operation made
_BLOCKS = re.compile(r"Dequeue|Enqueue|GetNext|Barrier|TakeGradient|TakeMany|Unstage|^Stage$|"
                     r"Reader|PyFunc|Collective|^_?(Host)?(Send|Recv)$")


class TimeShares(NamedTuple):
  """What the time of a run went to, as parts of it; together 1."""

  pulling: float
  computing: float
  pushing: float
  waiting: float
  seconds: float  # of the run

  def named(self):
    """[("pulling", its part), ...]."""
    return list(zip(self._fields[:4], self[:4]))

  def __str__(self):
    return ", ".join("%.0f %% %s" % (100 * share, name) for name, share in self.named())


class Transfer(NamedTuple):
  """A tensor that a traced run brought from one task to another; times in microseconds."""

  name: str  # of the operation that made it
  bytes: int
  source: str  # a task
  destination: str
  sent_messages: float
  arrived: float


class Ran(NamedTuple):
  """An operation of a traced run; times in microseconds, by its task's clock."""

  name: str
  type: str
  needs: List[str]  # the names of the operations of its inputs, "_S9" behind those of other tasks
  task: str
  start: float
  end: float


class Trace(NamedTuple):
  """A traced run."""

  transfers: List[Transfer]
  ops: List[Ran]


def read_trace(metadata: tf.RunMetadata) -> Trace:
  """Reads what a run with `trace_level=FULL_TRACE` noted."""
  transfers, ops = [], []
  for device in metadata.step_stats.dev_stats:
    if not device.device.startswith("/job:"):
      continue  # a second account of the same operations
    task = placed.task_of_device(device.device)
    for node in device.node_stats:
      start = node.all_start_micros
      if node.node_name == _TRANSFER:
        label = _LABEL.search(node.timeline_label)
        if label is not None and node.output:
          allocation = node.output[0].tensor_description.allocation_description
          transfers.append(Transfer(
            label.group(1), allocation.requested_bytes,
            placed.task_of_device(label.group(2)), placed.task_of_device(label.group(3)),
            start, start + node.all_end_rel_micros))
      elif node.node_name != "_SOURCE":
        ops.append(Ran(node.node_name, *_call(node.timeline_label), task,
                       start + node.op_start_rel_micros, start + node.op_end_rel_micros))
  return Trace(transfers, ops)


def sent_messages(trace: Trace, steps: int = 1) -> traffic.StepTraffic:
  """What a traced run sent between tasks, with the sizes that the tensors had.

  Args:
    trace: of the run. What comes to a ps in its first moments is not always noted there.
    steps: the training steps that it made.

  Returns:
    A report. A message of 0 bytes is a signal, an empty tensor, or one of a branch that was not
    taken. What was fetched from a ps is not in it.
  """
  return traffic.StepTraffic([
    traffic.Message(one.name if one.bytes else "^" + one.name, one.source, one.destination,
                    one.bytes, traffic.RUN) for one in trace.transfers], steps)


def time_shares(trace: Trace, seconds: Optional[float] = None) -> TimeShares:
  """Divides the time of a traced run.

  Args:
    trace: of the run.
    seconds: how long a run takes that is not traced, if known: what the traced operations and
      transfers leave of it is waiting, too. None: from the first operation to the last.

  Returns:
    The shares.

  Raises:
    ValueError: the trace is empty: no FULL_TRACE, or nothing that ran.
  """
  if not trace.ops:
    raise ValueError("no operation was traced: run with trace_level=tf.RunOptions.FULL_TRACE")
  trace = _on_one_clock(trace)
  computing, pulling, pushing = [], [], []
  of_workers = _needing_workers(trace)
  for op in trace.ops:
    if not _BLOCKS.search(op.type):
      spans = (computing if not op.task.startswith(placed.PS) else
               pushing if (op.task, op.name) in of_workers else pulling)
      spans.append((op.start, op.end))
  for one in trace.transfers:
    is_pull = one.source.startswith(placed.PS) and not one.destination.startswith(placed.PS)
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
  """(type, names of inputs) of "name = Type(input:1, ^other)"."""
  found = _CALL.search(label)
  if found is None:
    return "", []
  return found.group(1), [name.strip().lstrip("^").split(":")[0]
                          for name in found.group(2).split(",") if name.strip()]


def _needing_workers(trace) -> set:
  """{(task, name)} of the operations of ps that need something of a worker."""
  from_workers = {(one.destination, one.name) for one in trace.transfers
                  if not one.source.startswith(placed.PS)}
  places: Dict[str, list] = {}
  for op in trace.ops:
    places.setdefault(op.name, []).append(op.task)
  found: set = set()
  for op in sorted(trace.ops, key=lambda op: op.start):  # what is needed ran before
    for name in op.needs:
      here = (op.task, name)
      made = _RECEIVED.sub("", name)
      if here in found or (made != name and ((op.task, made) in from_workers or any(
          (task, made) in found for task in places.get(made, [])))):
        found.add((op.task, op.name))
  return found


def _union(spans):
  """The spans in order, with those that overlap made one."""
  joined = []
  for start, end in sorted(span for span in spans if span[1] > span[0]):
    if joined and start <= joined[-1][1]:
      joined[-1] = joined[-1][0], max(end, joined[-1][1])
    else:
      joined.append((start, end))
  return joined


def _length(spans):
  return sum(end - start for start, end in spans)


def _on_one_clock(trace) -> Trace:
  """The trace with the times of each ps set to a worker's clock, where they cannot be right."""
  ends = {(op.task, op.name): op.end for op in trace.ops}
  ways: Dict[tuple, float] = {}  # what the shortest takes, by (source, destination)
  for one in trace.transfers:
    if (one.source, one.name) in ends:
      way, took = (one.source, one.destination), one.arrived - ends[one.source, one.name]
      ways[way] = min(took, ways.get(way, took))
  ahead: Dict[str, float] = {}
  for (source, destination), down in ways.items():
    up = ways.get((destination, source))
    if source.startswith(placed.PS) and not destination.startswith(placed.PS):
      if up is None:
        ahead[source] = min(0.0, down)
      elif min(down, up) < 0:
        ahead[source] = (down - up) / 2

  def moved(one, task, *names):
    return one._replace(**{name: getattr(one, name) + ahead.get(task, 0.0) for name in names})

  return Trace([moved(one, one.destination, "sent", "arrived") for one in trace.transfers],
               [moved(op, op.task, "start", "end") for op in trace.ops])
