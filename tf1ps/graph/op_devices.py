"""Finds where operations run, from a finished graph.

TensorFlow's placer completes a device in this order, and so does `OpDevices`:

1. An operation on a resource runs on the device of the resource, if the resource has a device. An
   operation that is colocated with another operation runs on the device of that operation. For
   example, the switches of `tf.cond` are colocated with their inputs. (An operation on a reference
   to a variable has the variable's device from its creation.)
2. Otherwise, the device of the operation itself counts.
3. Each part that is still open comes from the task of the session: the client's worker.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Dict, Iterator

import tensorflow.compat.v1 as tf

VARIABLE_OPS = frozenset(["VarHandleOp", "VariableV2", "Variable"])  # types of operations
LOCAL_CPU = "/job:localhost/replica:0/task:0/device:CPU:0"  # in a session without a server


@functools.lru_cache(maxsize=1024)
def task_of_device(device: str) -> str:
  """Returns the task of a device, such as "/job:ps/task:0"; "" if the device names none."""
  spec = tf.DeviceSpec.from_string(device or "")
  return "" if spec.job is None else "/job:%s/task:%d" % (spec.job, spec.task or 0)


@functools.lru_cache(maxsize=1024)
def place_of_device(device: str) -> str:
  """Returns the task of a device, and its type and index if the device names them.

  Examples are "/job:worker/task:1/device:GPU:0" and "/job:worker/task:1". For the latter,
  TensorFlow takes a GPU if the operation can run on a GPU.
  """
  spec = tf.DeviceSpec.from_string(device or "")
  if not spec.device_type:
    return task_of_device(device)
  index = "" if spec.device_index is None else ":%d" % spec.device_index
  return "%s/device:%s%s" % (task_of_device(device), spec.device_type, index)


def cpu_of(task: str) -> str:
  """Returns the device of a task's CPU."""
  return task + "/device:CPU:0"


def task_of_op(op: tf.Operation) -> str:
  """Returns the task that an operation names by its variable or its device; "" if it names none."""
  return task_of_device(_device_of(op))


def place_of_op(op: tf.Operation) -> str:
  """Returns the place, as `place_of_device`, that an operation names by its variable or device."""
  return place_of_device(_device_of(op))


def _device_of(op):
  for tensor in op.inputs:
    if tensor.op.type in VARIABLE_OPS:
      return tensor.op.device
  return op.device


@contextlib.contextmanager
def on_place(place: str) -> Iterator[None]:
  """Makes operations run at a place, regardless of outer device scopes; "": the scopes decide."""
  if not place:
    yield
    return
  with tf.device(None), tf.device(place):
    yield


class OpDevices:
  """The devices of operations, as far as the graph shows them."""

  def __init__(self, default: str):
    """Creates the table; `default` is the device of operations without a device."""
    self._default = tf.DeviceSpec.from_string(LOCAL_CPU).make_merged_spec(
      tf.DeviceSpec.from_string(default))
    self._complete: Dict[str, str] = {}  # by the device that an operation names
    self._named: Dict[tf.Operation, str] = {}

  def of(self, op: tf.Operation) -> str:
    """Returns the complete device of an operation."""
    device = self._find(op)
    if device not in self._complete:
      self._complete[device] = self._default.make_merged_spec(
        tf.DeviceSpec.from_string(device)).to_string()
    return self._complete[device]

  def _find(self, op) -> str:
    """Returns the device that the graph names for an operation, or ""."""
    if op not in self._named:
      self._named[op] = op.device or ""  # ends the recursion in a loop that carries a resource
      owners = {self._find(tensor.op) for tensor in op.inputs if tensor.dtype == tf.resource}
      owners.update(self._find(other) for other in _colocated(op))
      owners.discard("")
      # A function may take resources of several devices. Then its own device decides.
      if len(owners) == 1:
        self._named[op] = owners.pop()
    return self._named[op]


def _colocated(op):
  """Returns the operations that an operation must run beside."""
  names = [tf.compat.as_str(group)[len("loc:@"):] for group in op.colocation_groups()]
  return [op.graph.get_operation_by_name(name) for name in names if name != op.name]
