"""What a training step sends: bytes and messages, down (ps to worker) and up, for each ps.

`report` reads it off the finished graph, as TensorFlow cuts that into a part for each task:

1. The operations that the fetches need, and the task of each (placed.py).
2. A tensor that an operation of another task needs is one message to that task, however many need
   it there. So is the news that operations are done, where another task waits for them by a
   control dependency: a signal, a message without bytes (signals.py).
3. A fetched tensor of a ps comes down with the ps's answer to the run, and one that is fed there
   goes up with the question: bytes, but no message.

The size of a tensor is that of its shape. An unknown first dimension is `batch` where that is
given. Of what is still not known, a traced run tells (step_trace.py), as it tells what was really
sent: a tensor inside of a condition travels only where its branch is taken, what stands in a loop
once an iteration, and TensorFlow's optimizer adds a signal or spares one.

  print(traffic.table(traffic.report([train_op, loss])))

  a step                  down: bytes  messages      up: bytes  messages
  /job:ps/task:0               31,400         2         31,404         3
  all                          31,400         2         31,404         3
          31,360 bytes: w/read:0, /job:ps/task:0 to /job:worker/task:0
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.transfer import placed, signals

SHAPE, BATCH, RUN, UNKNOWN = "shape", "batch", "run", ""


class Message(NamedTuple):
  """What travels from one task to another in a run."""

  tensor: str  # its name, "w/read:0"; of a signal the operation that is done, "^update"
  source: str  # the task that sends it, "/job:ps/task:0"
  destination: str  # the task that needs it
  bytes: Optional[int]  # of the tensor; 0 of a signal; None: not known
  known_by: str  # whence the bytes are known: "shape", "batch", "run" (was measured), or ""
  messages: int = 1  # 0: comes with the answer to the run


class Total(NamedTuple):
  """The sum of some messages, a step."""

  bytes: float  # of those whose size is known
  messages: float  # the signals among them too
  signals: float  # messages that bear no value
  unknown: int  # messages, a run, whose size is not known

  def __str__(self):
    return self.say(" message" if self.messages == 1 else " messages")

  def say(self, noun: str = "") -> str:
    """"1.7 MB and 3", with a noun behind."""
    return "%s%s and %s%s" % ("at least " if self.unknown else "", format_bytes(self.bytes),
                              _count(self.messages), noun)


class StepTraffic(NamedTuple):
  """What a run sends between tasks."""

  messages: List[Message]  # of one run
  steps: int  # training steps in a run, by which the totals are divided

  @property
  def down(self) -> Total:
    """From the ps to the workers."""
    return self.total([m for m in self.messages if _way(m) == "down"])

  @property
  def up(self) -> Total:
    """From the workers to the ps."""
    return self.total([m for m in self.messages if _way(m) == "up"])

  @property
  def across(self) -> Total:
    """Between one ps and another, or one worker and another."""
    return self.total([m for m in self.messages if _way(m) == "across"])

  @property
  def by_ps(self) -> Dict[str, tuple]:
    """{"/job:ps/task:0": (down, up)}, in order; without what one ps sends to another."""
    names = {name for m in self.messages for name in m[1:3] if name.startswith(placed.PS)}
    return {name: tuple(
      self.total([m for m in self.messages if _way(m) == way and name in m[1:3]])
      for way in ("down", "up")) for name in sorted(names, key=lambda name: (len(name), name))}

  def total(self, messages: Sequence[Message]) -> Total:
    """The sum of some of its messages."""
    return Total(sum(m.bytes or 0 for m in messages) / self.steps,
                 sum(m.messages for m in messages) / self.steps,
                 sum(m.messages for m in messages if m.bytes == 0) / self.steps,
                 sum(m.bytes is None for m in messages))

  def __str__(self):
    return "sent %s a step down, %s up" % (self.down, self.up.say())


def report_traffic(
  fetches,
  worker: Optional[str] = None,
  batch: Optional[int] = None,
  steps: int = 1,
  feeds: Sequence[tf.Tensor] = (),
) -> StepTraffic:
  """Computes what running these sends.

  Args:
    fetches: what `session.run` is given: tensors, operations, or names, in lists or dicts.
    worker: the task of the session's target, "/job:worker/task:0", where an operation without a
      device runs; None: the one task that is no ps in the devices of the graph.
    batch: the examples of a batch, for unknown first dimensions.
    steps: the training steps that one run makes.
    feeds: the tensors that are fed, beside placeholders.

  Returns:
    A `Report`.

  Raises:
    ValueError: no steps; a batch below 1; the worker is not given and the graph names several.
  """
  if steps < 1:
    raise ValueError("steps must be the training steps of a run, 1 or more, got %r" % (steps,))
  if batch is not None and batch < 1:
    raise ValueError("batch must be the examples of a batch, 1 or more, got %r" % (batch,))
  graph = tf.get_default_graph()
  roots = [graph.as_graph_element(getattr(one, "_as_graph_element", lambda one=one: one)())
           for one in tf.nest.flatten(fetches) if one is not None]
  ops = placed.needed_ops(
    [one if isinstance(one, tf.Operation) else one.op for one in roots], feeds
  )
  worker = placed.task_of_device(worker or placed.worker_of(ops))
  devices = placed.OpDevices(worker)
  tasks = {op: placed.task_of_device(devices.of(op)) for op in ops}
  copied = placed.copied_constants(ops, tasks)
  fed = {tensor.name for tensor in feeds}
  found: Dict[tuple, Message] = {}

  def send(tensor, source, destination, with_run=False):
    if source != destination:
      found[tensor.name, destination, with_run] = Message(
        tensor.name, source, destination, *_size(tensor, batch), 0 if with_run else 1)

  for op in ops:
    for tensor in op.inputs:
      if tensor.dtype not in (tf.resource, tf.variant) and tensor.op not in copied:
        source = placed.task_of_device(devices.of(tensor.op))
        if tensor.name in fed or tensor.op.type.startswith("Placeholder"):
          send(tensor, worker, source, with_run=True)
        send(tensor, source, tasks[op])
  for one in roots:
    if not isinstance(one, tf.Operation):
      send(one, tasks[one.op], worker, with_run=True)
  return StepTraffic(list(found.values()) + [
    Message("^" + signal.name, signal.source, signal.destination, 0, SHAPE)
    for signal in signals.signals(ops, roots, tasks)], steps)


def merge_trace(graph: StepTraffic, trace: StepTraffic) -> StepTraffic:
  """What a step sends, by its graph and by a traced run together.

  A trace knows all sizes, and what was optimized; but on a ps TensorFlow sometimes begins too late
  to note what comes there. From each task to each other one the trace tells, unless there is less
  in it than tensors in the graph: then the graph does.
  """
  messages = []
  for way in dict.fromkeys((m.source, m.destination) for m in graph.messages + trace.messages):
    noted = [m for m in trace.messages if m[1:3] == way]
    expected = [m for m in graph.messages if m[1:3] == way]
    if sum(m.bytes != 0 for m in noted) >= sum(m.messages for m in expected if m.bytes != 0):
      messages += noted + [m for m in expected if not m.messages]  # those are in no trace
    else:
      messages += expected
  return StepTraffic(messages, graph.steps)


def traffic_table(of: StepTraffic, largest: int = 5) -> str:
  """A report as lines, with so many of its largest messages."""
  rows = [("a step", "down: bytes", "messages", "up: bytes", "messages")]
  rows += [(name, *_cells(down), *_cells(up))
           for name, (down, up) in list(of.by_ps.items()) + [("all", (of.down, of.up))]]
  lines = ["%-20s %14s %9s %14s %9s" % row for row in rows]
  if of.across.messages:
    lines.append("between ps, or between workers: %s" % (of.across,))
  for message in sorted(of.messages, key=lambda m: -(m.bytes or 0))[:largest]:
    if message.bytes:
      lines.append("%14s bytes: %s, %s to %s" % (
        format(message.bytes, ","), message.tensor, message.source, message.destination))
  unknown = [m.tensor for m in of.messages if m.bytes is None]
  if unknown:
    lines.append("of unknown size: %s%s" % (
      ", ".join(unknown[:5]), " and %d more" % (len(unknown) - 5) if len(unknown) > 5 else ""))
  return "\n".join(lines)


def format_bytes(count: float) -> str:
  """1.7 MB, in powers of 1,000 as networks are measured."""
  for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
    if count >= 0.9995 * size:
      return "%.3g %s" % (count / size, unit)
  return "%d bytes" % round(count)


def _cells(total):
  return ((">= " if total.unknown else "") + format(round(total.bytes), ","),
          _count(total.messages))


def _count(number):
  return "%d" % number if number == int(number) else "%.1f" % number


def _way(message):
  from_ps, to_ps = message.source.startswith(placed.PS), message.destination.startswith(placed.PS)
  return "across" if from_ps == to_ps else "down" if from_ps else "up"


def _size(tensor, batch):
  """(bytes or None, whence they are known)."""
  size, shape = tensor.dtype.base_dtype.size, tensor.shape
  if tensor.dtype.base_dtype in (tf.string, tf.resource, tf.variant) or not shape.rank:
    is_scalar = shape.rank == 0 and tensor.dtype.base_dtype not in (
      tf.string, tf.resource, tf.variant)
    return (size, SHAPE) if is_scalar else (None, UNKNOWN)
  if shape.is_fully_defined():
    return size * shape.num_elements(), SHAPE
  dims = shape.as_list()
  if batch is not None and None not in dims[1:]:
    return size * tf.TensorShape([batch] + dims[1:]).num_elements(), BATCH
  return None, UNKNOWN
