"""Which operations a run needs, and where each of them runs, read off a finished graph.

What a device leaves open is filled in as TensorFlow's placer fills it in, in this order:

1. An operation on a resource runs where that lives, if that has a device, and so does one that is
   colocated with it, as the switches of `tf.cond` are with what they are given. (One on a reference
   to a variable has the variable's device as soon as it is made.)
2. The device of the operation itself counts.
3. What is still open is as on the task of the session that runs it: the client's worker.
"""

from __future__ import annotations

import functools
from typing import Dict, Iterable, List, Sequence, Set

import tensorflow.compat.v1 as tf

VARIABLES = frozenset(["VarHandleOp", "VariableV2", "Variable"])  # types of operations
PS = "/job:ps/"  # how the tasks begin that keep the variables
LOCAL_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"  # of a session without a server


def needed_ops(roots: Sequence[tf.Operation], fed: Iterable[tf.Tensor] = ()) -> List[tf.Operation]:
  """The operations that these need, and they themselves, in the order in which they were made.

  Args:
    roots: operations of one graph.
    fed: tensors whose values come from the client: what they are made of is not needed.

  Returns:
    A list of operations.
  """
  fed = {tensor.name for tensor in fed}
  seen, waiting = set(roots), list(roots)
  while waiting:
    op = waiting.pop()
    inputs = [tensor.op for tensor in op.inputs if tensor.name not in fed]
    for other in inputs + list(op.control_inputs):
      if other not in seen:
        seen.add(other)
        waiting.append(other)
  return [op for op in roots[0].graph.get_operations() if op in seen] if roots else []


@functools.lru_cache(maxsize=1024)
def task_of_device(device: str) -> str:
  """The task of a device: "/job:ps/task:0"; "" where the device names none."""
  spec = tf.DeviceSpec.from_string(device or "")
  return "" if spec.job is None else "/job:%s/task:%d" % (spec.job, spec.task or 0)


def cpu_of(task: str) -> str:
  """The CPU of a task."""
  return task + "/device:CPU:0"


def suffix_of(task: str) -> str:
  """A task as a part of an operation's name: "_worker_0"."""
  return task.replace("/job:", "_").replace("/task:", "_")


def is_small(tensor: tf.Tensor) -> bool:
  """Whether a tensor has few elements, so that each task may as well make its own."""
  return tensor.shape.is_fully_defined() and tensor.shape.num_elements() <= 64


def place_of(op: tf.Operation) -> str:
  """The task that an operation runs on, by its device and its variables; "" where neither says."""
  for tensor in op.inputs:
    if tensor.op.type in VARIABLES:
      return task_of_device(tensor.op.device)
  return task_of_device(op.device)


def worker_of(ops: Sequence[tf.Operation]) -> str:
  """The only task in the operations' devices that is no ps; `LOCAL`'s where there is none.

  Raises ValueError where there are several.
  """
  named = {task_of_device(device) for device in {op.device for op in ops}} - {""}
  workers = sorted(name for name in named if not name.startswith(PS))
  if len(workers) > 1:
    raise ValueError("the graph has operations on %s: say by worker= which of these is the task of "
                     "the session's target" % ", ".join(workers))
  return workers[0] if workers else task_of_device(LOCAL_CPU)


def copied_constants(ops: Sequence[tf.Operation], tasks: Dict[tf.Operation, str]
                     ) -> Set[tf.Operation]:
  """The constants that TensorFlow 2 makes on each task instead of sending them.

  Those of at most 16 elements that several tasks need; a lone task gets even a small one sent.

  Args:
    ops: all operations of a run.
    tasks: the task of each.

  Returns:
    A set of operations.
  """
  places: Dict[tf.Operation, set] = {}
  for op in ops:
    for tensor in op.inputs:
      if tensor.op.type == "Const" and (tensor.shape.num_elements() or 0) <= 16:
        places.setdefault(tensor.op, set()).add(tasks[op])
  is_new = not tf.version.VERSION.startswith("1.")
  return {op for op, tasks_of in places.items() if len(tasks_of) > 1} if is_new else set()


def _colocated(op):
  """The operations that one must run beside, as the graph says."""
  names = [tf.compat.as_str(group)[len("loc:@"):] for group in op.colocation_groups()]
  return [op.graph.get_operation_by_name(name) for name in names if name != op.name]


class OpDevices:
  """Where operations run, as far as the graph says."""

  def __init__(self, default: str):
    """Creates the table.

    Args:
      default: where an operation without a device runs: "/job:worker/task:0", or `LOCAL`.
    """
    self._default = tf.DeviceSpec.from_string(LOCAL_CPU).make_merged_spec(
      tf.DeviceSpec.from_string(default))
    self._wholes: Dict[str, str] = {}  # by the device that an operation has
    self._known: Dict[tf.Operation, str] = {}

  def of(self, op: tf.Operation) -> str:
    """The device of an operation, whole."""
    return self._whole(self._named(op))

  def _named(self, op) -> str:
    """What the graph says of it; "" where it says nothing."""
    if op not in self._known:
      self._known[op] = op.device or ""  # a loop that hands a resource round comes back here
      owners = {self._named(tensor.op) for tensor in op.inputs if tensor.dtype == tf.resource}
      owners.update(self._named(other) for other in _colocated(op))
      owners.discard("")
      # A function may take several resources, from several places: there its own device decides.
      if len(owners) == 1:
        self._known[op] = owners.pop()
    return self._known[op]

  def _whole(self, device) -> str:
    if device not in self._wholes:
      self._wholes[device] = self._default.make_merged_spec(
        tf.DeviceSpec.from_string(device)).to_string()
    return self._wholes[device]
