"""The device filters of a session, from the devices that its graph uses.

A session contacts every task that its filters let it see, and waits for each without a limit. With
filters made from the graph it waits for those alone that it needs:

  1. this task and the control task, always;
  2. each task that a device in the graph names, also inside the functions that the graph calls;
  3. all tasks of another job that a device names without a task, since TensorFlow may choose any.

A device that names neither a job nor a task adds nothing, and this task's own job without a task
means this task: where the filters hide the others, both TensorFlows choose it.
"""

from __future__ import annotations

from typing import Dict, List, Sequence, Set

import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Cluster, ClusterError, Task

# The ops whose work stands in functions, whose ops have devices of their own.
_CALLERS = frozenset(["If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase",
                      "For", "PartitionedCall", "StatefulPartitionedCall"])


def make_device_filters(graph: tf.Graph, cluster: Cluster) -> List[str]:
  """Returns the filters of a session that runs this graph.

  Args:
    graph: The graph, complete.
    cluster: The view of the job, with the task that opens the session.

  Returns:
    Such as ["/job:ps/task:0", "/job:worker/task:1"], by job and index, for
    `tf.ConfigProto.device_filters`.

  Raises:
    ClusterError: If an op's device names a task that is not in the cluster.
  """
  tasks = {cluster.task, cluster.control_task}
  for device, op_name in _devices(graph).items():
    try:
      tasks |= _tasks(device, cluster)
    except ClusterError as error:
      raise ClusterError(f'the op "{op_name}" is placed on "{device}", but {error}') from error
  return [task.name for task in sorted(tasks)]


def filters_show_task(filters: Sequence[str], task: Task) -> bool:
  """Whether a session with these filters sees a task."""
  specs = [tf.DeviceSpec.from_string(text) for text in filters]
  return any(spec.job in (None, task.job) and spec.task in (None, task.index) for spec in specs)


def _devices(graph) -> Dict[str, str]:
  """Returns each device of the graph with the name of one of its ops."""
  ops = graph.get_operations()
  devices = {op.device: op.name for op in reversed(ops)}
  # The whole graph is copied for its functions' sake: only where there are some.
  if any(op.type in _CALLERS for op in ops):
    for function in graph.as_graph_def().library.function:
      for node in function.node_def:
        devices.setdefault(node.device, f"{function.signature.name}/{node.name}")
  return devices


def _tasks(device, cluster) -> Set[Task]:
  """Returns the tasks on which TensorFlow may place what is to be on this device."""
  spec = tf.DeviceSpec.from_string(device)
  if spec.job is None and spec.task is None:
    return set()
  if spec.job is None:  # a task of whichever job
    return {task for task in cluster.tasks() if task.index == spec.task}
  if spec.task is not None:
    return {cluster.find(spec.job, spec.task)}
  if spec.job == cluster.task.job:
    return {cluster.task}
  tasks = set(cluster.tasks(spec.job))
  if not tasks:
    raise ClusterError(f"there is no job {spec.job} in the cluster, which has "
                       f"{', '.join(sorted(cluster.jobs))}")
  return tasks
