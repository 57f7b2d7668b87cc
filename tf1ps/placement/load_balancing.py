"""Strategies that choose the ps task of a variable.

A strategy is a callable that takes an op, usually a variable's op, and returns the position of a ps
task, 0 <= position < num_tasks. A device setter calls it once for each op that goes to a ps, in
the order in which the graph is built:

1. `RoundRobinStrategy` returns 0, 1, ..., num_tasks - 1, 0, ...
2. `GreedyLoadBalancingStrategy` adds up the load of each task and returns the least loaded task.
3. `RandomStrategy` returns a task by a hash of the op's name.

The result depends only on the ops and on the order of the calls. So all workers that build the
same graph place it in the same way, on every version of TensorFlow. All strategies also work with
`tf.train.replica_device_setter`.
"""

from __future__ import annotations

import hashlib
import numbers
from typing import Callable, List

import tensorflow.compat.v1 as tf

# Ops that make a variable; they have the attributes "shape" and "dtype".
VARIABLE_OPS = frozenset(["Variable", "VariableV2", "AutoReloadVariable", "VarHandleOp"])

# tf.string.size is 8 in TensorFlow 1.15 and 0 in 2.x. The length of the strings is not known when
# a variable is placed, so each counts as a pointer in every version.
_STRING_BYTES = 8


class RoundRobinStrategy(object):
  """Returns the tasks in turn, from 0."""

  def __init__(self, num_tasks: int):
    """Starts at task 0 of `num_tasks`; TypeError or ValueError unless `num_tasks` is 1 or more."""
    self._num_tasks = _checked_num_tasks(num_tasks)
    self._next_task = 0

  def __call__(self, op: tf.Operation) -> int:
    """Returns the position of the next task; ignores `op`."""
    del op
    task = self._next_task
    self._next_task = (task + 1) % self._num_tasks
    return task


class RandomStrategy(object):
  """Returns a task by a hash of the op's name, which is the task that TensorFlow 1.15 returns."""

  def __init__(self, num_ps_tasks: int, seed: int = 0):
    """Chooses among `num_ps_tasks` tasks; TypeError or ValueError unless that is 1 or more."""
    self._num_tasks = _checked_num_tasks(num_ps_tasks)
    self._seed = seed

  def __call__(self, op: tf.Operation) -> int:
    """Returns the position of the op's task."""
    text = "%s_%d" % (op.name, self._seed)
    return int(hashlib.md5(text.encode()).hexdigest(), 16) % self._num_tasks


class GreedyLoadBalancingStrategy(object):
  """Returns the task with the least load so far; among tasks of equal load, the lowest task.

  The balance is best if the graph makes its large variables first.
  """

  def __init__(self, num_tasks: int, load_fn: Callable[[tf.Operation], float]):
    """Starts with a load of 0 on each task.

    Args:
      num_tasks: number of ps tasks, at least 1.
      load_fn: takes an op and returns its load, a number in any unit; `byte_size_load_fn` counts
        bytes.

    Raises:
      TypeError, ValueError: `num_tasks` is not such a number, or `load_fn` is not callable.
    """
    self._loads: List[float] = [0] * _checked_num_tasks(num_tasks)
    if not callable(load_fn):
      raise TypeError("load_fn must be callable, as byte_size_load_fn is; got %r" % (load_fn,))
    self._load_fn = load_fn

  def __call__(self, op: tf.Operation) -> int:
    """Returns the position of the least loaded task, and adds the load of `op` to it."""
    load = self._load_fn(op)
    task = self._loads.index(min(self._loads))
    self._loads[task] += load
    return task


def byte_size_load_fn(op: tf.Operation) -> int:
  """Returns the bytes of the variable that `op` holds; a string element counts as 8 bytes.

  Args:
    op: `tf.Operation` of a ref variable (`VariableV2`) or a resource variable (`VarHandleOp`). Any
      other op counts as 0. An example is the op of a mutable table, whose size is known only at run
      time.

  Raises:
    TypeError: `op` is not an operation.
    ValueError: the variable's shape is not fully known.
  """
  if not isinstance(op, tf.Operation):
    raise TypeError("byte_size_load_fn takes a tf.Operation, the .op of a variable; got %r" % (op,))
  if op.type not in VARIABLE_OPS:
    return 0
  shape = tf.TensorShape(op.get_attr("shape"))
  if not shape.is_fully_defined():
    raise ValueError(
        "variable %s has the shape %s, so its size is not known when it is placed. Give it a full "
        "shape, or place it by round robin." % (op.name, shape))
  dtype = tf.as_dtype(op.get_attr("dtype")).base_dtype
  element_bytes = _STRING_BYTES if dtype == tf.string else dtype.size
  return shape.num_elements() * element_bytes


def known_bytes(op):
  """Returns the bytes of the variable that `op` holds, 0 if its shape is not fully known."""
  try:
    return byte_size_load_fn(op)
  except ValueError:
    return 0


def _checked_num_tasks(num_tasks):
  if isinstance(num_tasks, bool) or not isinstance(num_tasks, numbers.Integral):
    raise TypeError("num_tasks must be the number of ps tasks, an integer; got %r" % (num_tasks,))
  if num_tasks < 1:
    raise ValueError("num_tasks must be at least 1, got %d" % num_tasks)
  return int(num_tasks)
