"""Computes the bytes and messages that a training step sends to and from each ps.

Down is from a ps to a worker, and up is from a worker to a ps. `report_traffic` finds the messages
in the finished graph, as TensorFlow divides it by tasks:

1. It finds the operations that the fetches need, and the task of each operation.
2. A tensor that operations of another task need is one message to that task, for any number of
   operations there. A signal is also one message, without bytes. It says that the operations are
   done that an operation of another task waits for by a control dependency.
3. A fetched tensor of a ps travels down with the ps's answer to the run, and a tensor that is fed
   on a ps travels up with the request. Such tensors cost bytes, but no message.

The size of a tensor comes from its shape. An unknown first dimension is `batch`, if it is given.
Other unknown sizes come from a traced run (step_trace.py). So do differences between the graph and
a run: a tensor in a branch travels only if the branch is taken, a tensor in a loop travels once per
iteration, and TensorFlow's optimizer adds or removes signals.

  print(traffic_table(report_traffic([train_op, loss])))

  a step                  down: bytes  messages      up: bytes  messages
  /job:ps/task:0               31,400         2         31,404         3
  all                          31,400         2         31,404         3
          31,360 bytes: w/read:0, /job:ps/task:0 to /job:worker/task:0
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set

import tensorflow.compat.v1 as tf

from tf1ps.graph import LOCAL_CPU, OpDevices, needed_ops, task_of_device
from tf1ps.transfer.wire_options import format_bytes

PS = "/job:ps/"  # the beginning of the names of ps tasks
SHAPE, BATCH, RUN, UNKNOWN = "shape", "batch", "run", ""


class Message(NamedTuple):
  """A tensor or signal that travels from one task to another in a run."""

  tensor: str  # the tensor's name, "w/read:0"; for a signal the operation that is done, "^update"
  source: str  # the task that sends it, "/job:ps/task:0"
  destination: str  # the task that needs it
  bytes: Optional[int]  # the bytes of the tensor; 0 for a signal; None: not known
  known_by: str  # the source of the bytes: "shape", "batch", "run" (measured), or ""
  messages: int = 1  # 0: travels with the request or answer of the run


class Total(NamedTuple):
  """The sum of some messages, per step."""

  bytes: float  # of the messages of known size
  messages: float  # all messages, signals included
  signals: float  # messages without a value
  unknown: int  # messages of unknown size, per run

  def __str__(self):
    return self.say(" message" if self.messages == 1 else " messages")

  def say(self, noun: str = "") -> str:
    """Returns "1.7 MB and 3", followed by a noun."""
    return "%s%s and %s%s" % ("at least " if self.unknown else "", format_bytes(self.bytes),
                              _count(self.messages), noun)


class StepTraffic(NamedTuple):
  """The messages of a run between tasks."""

  messages: List[Message]  # of one run
  steps: int  # training steps per run; totals are divided by this number

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
    """Between two ps, or two workers."""
    return self.total([m for m in self.messages if _way(m) == "across"])

  @property
  def by_ps(self) -> Dict[str, tuple]:
    """{"/job:ps/task:0": (down, up)}, in order, without messages from ps to ps."""
    names = {name for m in self.messages for name in m[1:3] if name.startswith(PS)}
    return {name: tuple(
      self.total([m for m in self.messages if _way(m) == way and name in m[1:3]])
      for way in ("down", "up")) for name in sorted(names, key=lambda name: (len(name), name))}

  def total(self, messages: Sequence[Message]) -> Total:
    """Returns the sum of some of its messages."""
    return Total(sum(m.bytes or 0 for m in messages) / self.steps,
                 sum(m.messages for m in messages) / self.steps,
                 sum(m.messages for m in messages if m.bytes == 0) / self.steps,
                 sum(m.bytes is None for m in messages))

  def __str__(self):
    return "sent per step: %s down, %s up" % (self.down, self.up.say())


def report_traffic(
  fetches: Any,
  worker: Optional[str] = None,
  batch: Optional[int] = None,
  steps: int = 1,
  feeds: Sequence[tf.Tensor] = (),
) -> StepTraffic:
  """Computes the messages of a run; returns the messages.

  Args:
    fetches: fetches as for `tf.Session.run`: tensors, operations or names, in lists or dicts.
    worker: the task of the session's target, such as "/job:worker/task:0". Operations without a
      device run there. None: the only task in the devices of the graph that is not a ps.
    batch: the examples per batch, for unknown first dimensions.
    steps: the training steps per run.
    feeds: the tensors that are fed, besides placeholders.

  Raises:
    ValueError: if `steps` or `batch` is below 1, or `worker` is None and the graph names several
      workers.
  """
  if steps < 1:
    raise ValueError("steps must be the training steps per run, 1 or more, got %r" % (steps,))
  if batch is not None and batch < 1:
    raise ValueError("batch must be the examples per batch, 1 or more, got %r" % (batch,))
  graph = tf.get_default_graph()
  roots = [graph.as_graph_element(getattr(fetch, "_as_graph_element", lambda fetch=fetch: fetch)())
           for fetch in tf.nest.flatten(fetches) if fetch is not None]
  ops = needed_ops([root if isinstance(root, tf.Operation) else root.op for root in roots], feeds)
  worker = task_of_device(worker or _worker_of(ops))
  devices = OpDevices(worker)
  tasks = {op: task_of_device(devices.of(op)) for op in ops}
  copied = _copied_constants(ops, tasks)
  fed = {tensor.name for tensor in feeds}
  messages: Dict[tuple, Message] = {}

  def send(tensor, source, destination, with_run=False):
    if source != destination:
      messages[tensor.name, destination, with_run] = Message(
        tensor.name, source, destination, *_size(tensor, batch), 0 if with_run else 1)

  for op in ops:
    for tensor in op.inputs:
      if tensor.dtype not in (tf.resource, tf.variant) and tensor.op not in copied:
        source = task_of_device(devices.of(tensor.op))
        if tensor.name in fed or tensor.op.type.startswith("Placeholder"):
          send(tensor, worker, source, with_run=True)
        send(tensor, source, tasks[op])
  for root in roots:
    if not isinstance(root, tf.Operation):
      send(root, tasks[root.op], worker, with_run=True)
  return StepTraffic(list(messages.values()) + [
    Message("^" + signal.name, signal.source, signal.destination, 0, SHAPE)
    for signal in find_signals(ops, roots, tasks)], steps)


def merge_trace(graph: StepTraffic, trace: StepTraffic) -> StepTraffic:
  """Combines the messages that the graph and a traced run show.

  A trace has all sizes, and shows the optimized graph. But on a ps, TensorFlow sometimes begins too
  late to note the first tensors that arrive. So, for each pair of tasks, the result has the
  messages of the trace, unless the trace has fewer tensors than the graph.
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
  """Returns the traffic as the lines of a table, with its `largest` messages."""
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


def _cells(total):
  return ((">= " if total.unknown else "") + format(round(total.bytes), ","),
          _count(total.messages))


def _count(number):
  return "%d" % number if number == int(number) else "%.1f" % number


def _way(message):
  from_ps, to_ps = message.source.startswith(PS), message.destination.startswith(PS)
  return "across" if from_ps == to_ps else "down" if from_ps else "up"


def _size(tensor, batch):
  """Returns (the bytes or None, the source of this number)."""
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

class Signal(NamedTuple):
  """A message between tasks without a value: operations are done."""

  name: str  # the operation that is done, or the operation that waits for several operations
  source: str  # the task that sends it
  destination: str  # the task that waits


def find_signals(ops: Sequence[tf.Operation], fetches: Sequence, tasks: Dict[tf.Operation, str]
                 ) -> List[Signal]:
  """Finds the signals of a run, as TensorFlow's graph optimizer leaves them.

  1. A NoOp that only combines control dependencies is removed if the removal adds no dependencies,
     in all or between tasks. Fetched operations are never removed.
  2. All operations on one task that an operation of another task waits for send one signal.
  3. Operations on one task that wait for the same single operation share its signal.

  `ops` are all operations of the run, each after the operations that it needs. Returns the signals
  in the order of the waiting operations.
  """
  waits = {op: dict.fromkeys(op.control_inputs) for op in ops}  # sets that keep their order
  followers: Dict[tf.Operation, dict] = {op: {} for op in ops}
  for op in ops:
    for other in op.control_inputs:
      followers[other][op] = None
  for op in ops:
    if op.type == "NoOp" and op not in fetches and _is_removed(
        tasks[op], [tasks[before] for before in waits[op]],
        [tasks[after] for after in followers[op]]):
      for other in waits[op]:
        del followers[other][op]
        followers[other].update(followers[op])
      for follower in followers[op]:
        del waits[follower][op]
        waits[follower].update(waits[op])
      waits[op] = {}
  signals = {}
  for op in ops:
    by_task: Dict[str, list] = {}
    for other in waits[op]:
      by_task.setdefault(tasks[other], []).append(other)
    for task, others in by_task.items():
      if task != tasks[op]:
        name = others[0].name if len(others) == 1 else op.name
        signals[name, task, tasks[op]] = Signal(name, task, tasks[op])
  return list(signals.values())


def _is_removed(here: str, before: List[str], after: List[str]) -> bool:
  """Returns whether TensorFlow's dependency optimizer removes a NoOp on task `here`.

  `before` has the task of each operation that the NoOp waits for. `after` has the task of each
  operation that waits for the NoOp.
  """
  if not before or not after or len(before) * len(after) > len(before) + len(after):
    return False
  if len(before) == 1 and len(after) > 1 and before[0] != here:
    return False
  if len(before) > 1 and len(after) == 1 and after[0] != here:
    return False
  with_it = sum(task != here for task in before + after)
  without = sum(task_before != task_after for task_before in before for task_after in after)
  return without <= with_it


def _worker_of(ops: Sequence[tf.Operation]) -> str:
  """Returns the only task in the operations' devices that is not a ps, or the local CPU's task."""
  named = {task_of_device(device) for device in {op.device for op in ops}} - {""}
  workers = sorted(name for name in named if not name.startswith(PS))
  if len(workers) > 1:
    raise ValueError("the graph has operations on %s. Give the task of the session's target as "
                     "worker=" % ", ".join(workers))
  return workers[0] if workers else task_of_device(LOCAL_CPU)


def _copied_constants(ops: Sequence[tf.Operation], tasks: Dict[tf.Operation, str]
                      ) -> Set[tf.Operation]:
  """Returns the constants that TensorFlow 2 creates on each task and does not send.

  These are constants of at most 16 elements that several tasks need. A constant of any size that
  only a single other task needs is sent.
  """
  places: Dict[tf.Operation, set] = {}
  for op in ops:
    for tensor in op.inputs:
      if tensor.op.type == "Const" and (tensor.shape.num_elements() or 0) <= 16:
        places.setdefault(tensor.op, set()).add(tasks[op])
  is_new = not tf.version.VERSION.startswith("1.")
  return {op for op, tasks_of in places.items() if len(tasks_of) > 1} if is_new else set()
