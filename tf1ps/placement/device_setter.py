"""The device setter: a drop-in for `tf.train.replica_device_setter`.

In the scope `with tf.device(replica_device_setter(...)):`, the setter chooses a device for each op:

1. It keeps every field of a device that an inner scope names.
2. An op in `ps_ops` goes to the ps that `ps_strategy` chooses, unless an inner scope names another
   job.
3. Any other op goes to the worker. So does the op of a local variable (local_variables.py), which
   the strategy never sees.

As in TensorFlow, a slot of an optimizer follows its variable by colocation.

There are three differences from TensorFlow. Local variables stay on the worker. In a cluster whose
ps have the indices 1 and 4, the setter uses the tasks 1 and 4. `ps_strategy` can be a name.
"""

from __future__ import annotations

import logging
import numbers
import operator
from typing import Callable, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.placement import load_balancing, local_variables

_log = logging.getLogger("tf1ps")
# Variables and other resources that workers share by name and that training changes.
DEFAULT_PS_OPS = load_balancing.VARIABLE_OPS | frozenset([
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableHashTableOfTensors",
    "MutableHashTableOfTensorsV2",
    "MutableDenseHashTable",
    "MutableDenseHashTableV2",
    "ResourceConditionalAccumulator",
    "BoostedTreesEnsembleResourceHandleOp",
    "BoostedTreesQuantileStreamResourceHandleOp",
    "DecisionTreeResource",
])

# Strategies by name: callables that take the number of ps tasks.
STRATEGIES = {
    "greedy": lambda num_tasks: load_balancing.GreedyLoadBalancingStrategy(
        num_tasks, load_balancing.known_bytes),
    "round_robin": load_balancing.RoundRobinStrategy,
}


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: Optional[str] = "/job:ps",
    worker_device: Optional[str] = "/job:worker",
    merge_devices: bool = True,
    cluster: Union[tf.train.ClusterSpec, tf.train.ClusterDef, dict, None] = None,
    ps_ops: Optional[Sequence[str]] = None,
    ps_strategy: Union[str, Callable[[tf.Operation], int], None] = None
) -> Optional[Callable[[tf.Operation], str]]:
  """Returns a device function that puts variables on the ps and all other ops on the worker.

  To recognise local variables, this function enters a `tf.variable_creator_scope` that stays open:
  on the default graph of this call, and on each other graph in which `tf.device` enters the setter.
  Two limits follow:

  - Do not make or enter the setter inside of your own `tf.variable_creator_scope`, unless the
    setter was used on that graph before. Otherwise TensorFlow raises "Exiting
    variable_creator_scope without proper nesting".
  - If your own device function calls the setter in a different graph from the graph of this call, a
    local variable that is the first op of the graph is placed like a global variable.

  Args:
    ps_tasks: number of ps tasks; ignored if `cluster` is given.
    ps_device: device string of the ps, without a task. "": no op goes to a ps.
    worker_device: device string of this worker, such as "/job:worker/task:1". "": ops that do not
      go to a ps get no device.
    merge_devices: True: the setter completes the device of an inner scope field by field. False:
      an op keeps the device of an inner scope unchanged.
    cluster: `tf.train.ClusterSpec`, `ClusterDef` or dict that lists the ps tasks.
    ps_ops: list of the op types that go to the ps; None: `DEFAULT_PS_OPS`.
    ps_strategy: callable that takes the op and returns the position of a ps task, 0 for the first;
      or "round_robin" or "greedy" (by bytes; a variable of unknown shape counts 0). None:
      round robin.

  Returns:
    A callable for `tf.device`, or None if there is no ps task, because `tf.device(None)` sets no
    device.

  Raises:
    TypeError: an argument has the wrong type.
    ValueError: `ps_tasks` is negative, a device string cannot be parsed, or `ps_strategy` is not
      the name of a strategy.
  """
  ps_spec = _parsed("ps_device", ps_device)
  worker_spec = _parsed("worker_device", worker_device)
  if cluster is None:
    tasks = _checked_range(ps_tasks)
  else:
    cluster_spec = tf.train.ClusterSpec(cluster)
    tasks = cluster_spec.task_indices(ps_spec.job) if ps_spec.job in cluster_spec.jobs else []
  ps_ops = _checked_ps_ops(ps_ops)
  make_strategy = _strategy_maker(ps_strategy)
  if not tasks:
    return None
  if tf.executing_eagerly():
    _log.warning(
      "eager execution is on, and tf.device takes no device setter then. Call "
      "tf.disable_v2_behavior() right after `import tensorflow.compat.v1 as tf`, or build inside "
      "of `with tf.Graph().as_default():`.")
  setter = _DeviceSetter(tasks, ps_spec, worker_spec, merge_devices, ps_ops,
                         make_strategy(len(tasks)))
  local_variables.install(tf.get_default_graph(), worker_spec.to_string(), replace=True)
  return setter


# The end of the name of an operation that gets no device from a setter, so that the operation shows
# the device that the scopes name.
SCOPE_ANCHOR = "scope_anchor"


class _DeviceSetter(object):
  """The device function; `tasks` are the indices of the ps tasks, in order."""

  def __init__(self, tasks, ps_spec, worker_spec, merge_devices, ps_ops, strategy):
    self._tasks, self._ps_spec, self._worker_spec = tasks, ps_spec, worker_spec
    self._merge_devices, self._ps_ops, self._strategy = merge_devices, ps_ops, strategy

  @property
  def __call__(self):
    """The device function. Reading it prepares the default graph for local variables.

    `tf.device` reads this property when the scope is entered, before the first op is made. That op
    may be a local variable in a different graph from the graph in which the setter was made.
    """
    local_variables.install(tf.get_default_graph())
    return self._device

  def _device(self, op):
    """Returns the device string of `op`, a `tf.Operation` or a `NodeDef`."""
    if isinstance(op, tf.NodeDef):
      op_type = op.op
    else:
      op_type = op.type
      local_variables.install(op.graph, self._worker_spec.to_string())
    if op.device and not self._merge_devices or op.name.endswith(SCOPE_ANCHOR):
      return op.device
    inner = tf.DeviceSpec.from_string(op.device or "")
    outer = self._worker_spec
    if self._goes_to_ps(op_type, inner):
      outer = self._ps_spec
      if outer.job and inner.job in (None, outer.job):
        outer = outer.replace(task=self._choose(op))
    return outer.make_merged_spec(inner).to_string()

  def _goes_to_ps(self, op_type, inner):
    """Returns whether the op gets the device of the ps."""
    if not self._ps_spec.to_string() or op_type not in self._ps_ops:
      return False
    if op_type in load_balancing.VARIABLE_OPS and local_variables.being_made():
      # A local variable goes to a ps only if an inner scope names the job of the ps.
      return inner.job is not None and inner.job == self._ps_spec.job
    return True

  def _choose(self, op):
    """Returns the index of the ps task that the strategy chooses for `op`."""
    position = self._strategy(op)
    try:
      position = operator.index(position)
    except TypeError:
      raise TypeError("ps_strategy must return the position of a ps task, an integer; "
                      "for %s it returned %r" % (op.name, position)) from None
    if not 0 <= position < len(self._tasks):
      raise ValueError("ps_strategy must return the position of a ps task, 0 to %d; for %s it "
                       "returned %d" % (len(self._tasks) - 1, op.name, position))
    return self._tasks[position]


def _parsed(name, device):
  """Returns the `tf.DeviceSpec` of a device string, or raises."""
  if device is not None and not isinstance(device, str):
    raise TypeError("%s must be a device string such as \"/job:worker/task:0\"; got %r"
                    % (name, device))
  try:
    return tf.DeviceSpec.from_string(device or "")
  except ValueError as error:
    raise ValueError("%s=%r is not a device string such as \"/job:worker/task:0\": %s"
                     % (name, device, error)) from None


def _checked_range(ps_tasks):
  """Returns the indices of `ps_tasks` tasks, or raises."""
  if isinstance(ps_tasks, bool) or not isinstance(ps_tasks, numbers.Integral):
    raise TypeError("ps_tasks must be the number of ps tasks, an integer; got %r" % (ps_tasks,))
  if ps_tasks < 0:
    raise ValueError("ps_tasks must be at least 0, got %d" % ps_tasks)
  return list(range(ps_tasks))


def _checked_ps_ops(ps_ops):
  """Returns the set of op types that go to the ps, or raises."""
  if ps_ops is None:
    return DEFAULT_PS_OPS
  if isinstance(ps_ops, str) or not all(isinstance(op_type, str) for op_type in ps_ops):
    raise TypeError("ps_ops must be a list of op types such as [\"VarHandleOp\"]; got %r"
                    % (ps_ops,))
  return frozenset(ps_ops)


def _strategy_maker(ps_strategy):
  """Returns a function from the number of ps tasks to the strategy, or raises."""
  if ps_strategy is None:
    return load_balancing.RoundRobinStrategy
  if isinstance(ps_strategy, str):
    if ps_strategy not in STRATEGIES:
      raise ValueError("ps_strategy=%r is not known. Use one of %s, or a callable."
                       % (ps_strategy, ", ".join(sorted(STRATEGIES))))
    return STRATEGIES[ps_strategy]
  if not callable(ps_strategy):
    raise TypeError("ps_strategy must be callable, or the name of a strategy; got %r"
                    % (ps_strategy,))
  return lambda num_tasks: ps_strategy
