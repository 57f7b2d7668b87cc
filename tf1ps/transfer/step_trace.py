"""Reads from a traced run the operations that ran and the messages that were sent.

`session.run(..., tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)` notes when each
operation ran, on every task, and each tensor that a task got from another task, with its bytes.
`sent_messages` makes a `StepTraffic` of these notes; step_time.py divides the time.

TensorFlow notes both ends of a transfer by the clock of the receiver. It notes the operations of a
ps by the clock of the ps, which equals the worker's clock only if both run on the same machine. If
a tensor arrived before it was made according to these clocks, `on_one_clock` corrects the clock of
the ps, so that the fastest transfers in both directions take the same time.
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.graph import task_of_device
from tf1ps.transfer import traffic
from tf1ps.transfer.traffic import PS

_TRANSFERS = ("RecvTensor", "RecvBuf")  # the second is a part of a collective operation's tensor
# "[256B] [2.79Mb/s] edge_9_b/read from /job:ps/... to /job:worker/..."
_LABEL = re.compile(r"(?:edge_\d+_)?(\S+) from (\S+) to (\S+)$")
_CALL = re.compile(r" = (\w+)\((.*)\)$", re.DOTALL)


class Transfer(NamedTuple):
  """A tensor that a task got from another task in a traced run; times in microseconds."""

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
  needs: List[str]  # the operations of its inputs; the names from other tasks end with "_S9"
  task: str
  start: float
  end: float
  device: str = ""  # of its task, "CPU:0"


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
      if node.node_name in _TRANSFERS:
        label = _LABEL.search(node.timeline_label)
        if label is not None and node.output:
          allocation = node.output[0].tensor_description.allocation_description
          transfers.append(Transfer(
            label.group(1) if node.node_name == _TRANSFERS[0] else "collective",
            allocation.requested_bytes,
            task_of_device(label.group(2)), task_of_device(label.group(3)),
            start, start + node.all_end_rel_micros))
      elif node.node_name != "_SOURCE":
        kind, needs = _call(node.timeline_label)
        ops.append(Ran(node.node_name, kind, needs, task, start + node.op_start_rel_micros,
                       start + node.op_end_rel_micros, device.device.rpartition("/device:")[2]))
  return Trace(transfers, ops)


def sent_messages(trace: Trace, steps: int = 1) -> traffic.StepTraffic:
  """Returns the messages of a traced run, with the actual sizes of the tensors.

  A message of 0 bytes is a signal, an empty tensor, or a tensor of a branch that was not taken. The
  trace may lack tensors that arrived on a ps in its first moments, and it lacks tensors that were
  fetched from a ps.
  """
  return traffic.StepTraffic([
    traffic.Message(sent.name if sent.bytes else "^" + sent.name, sent.source, sent.destination,
                    sent.bytes, traffic.RUN) for sent in trace.transfers], steps)


def _call(label: str) -> Tuple[str, List[str]]:
  """Returns (type, names of inputs) of "name = Type(input:1, ^other)"."""
  call = _CALL.search(label)
  if call is None:
    return "", []
  return call.group(1), [name.strip().lstrip("^").split(":")[0]
                          for name in call.group(2).split(",") if name.strip()]


def on_one_clock(trace: Trace) -> Trace:
  """Corrects the clock of each ps by a worker's clock, if the times of the ps are impossible."""
  ends = {(op.task, op.name): op.end for op in trace.ops}
  ways: Dict[tuple, float] = {}  # the shortest transfer by (source, destination)
  for transfer in trace.transfers:
    if (transfer.source, transfer.name) in ends:
      way = transfer.source, transfer.destination
      took = transfer.arrived - ends[transfer.source, transfer.name]
      ways[way] = min(took, ways.get(way, took))
  ahead: Dict[str, float] = {}
  for (source, destination), down in ways.items():
    up = ways.get((destination, source))
    if source.startswith(PS) and not destination.startswith(PS):
      if up is None:
        ahead[source] = min(0.0, down)
      elif min(down, up) < 0:
        ahead[source] = (down - up) / 2

  def moved(event, task, *names):
    return event._replace(**{name: getattr(event, name) + ahead.get(task, 0.0) for name in names})

  return Trace([moved(sent, sent.destination, "sent", "arrived") for sent in trace.transfers],
               [moved(op, op.task, "start", "end") for op in trace.ops])
