"""Gives variables without a device the place that TensorFlow 1 chooses for them.

In a session of a server, TensorFlow 1 puts an operation without a device on the first device by
name, such as /job:ps/task:0. TensorFlow 2 puts it on the session's own task. So programs without a
device setter share their variables on the former, and train apart in silence on the latter.

A session can only change the device of an operation that exists by `Operation._set_device`, which
is private; the test of this module notices when it is gone.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

IS_TENSORFLOW_1 = tf.__version__.startswith("1.")


def place_variables(graph: tf.Graph, task: str) -> List[str]:
  """Places the global variables of a graph that name no task; does nothing on TensorFlow 1.

  A variable on a GPU stays there, and a variable that is colocated with a placed operation, too.

  Args:
    graph: the graph; a session that has run it does not notice the change.
    task: such as "/job:ps/task:0".

  Returns:
    The names of the variables that were placed.
  """
  if IS_TENSORFLOW_1:
    return []
  placed = []
  for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES):
    operation = variable.op
    spec = tf.DeviceSpec.from_string(operation.device or "")
    if spec.job is None and spec.device_type in (None, "CPU") and not _has_company(operation):
      operation._set_device(tf.DeviceSpec.from_string(task).make_merged_spec(spec).to_string())
      placed.append(operation.name)
  return placed


def _has_company(operation: tf.Operation) -> bool:
  """Whether an operation is colocated with an operation whose device names another task."""
  for group in operation.colocation_groups():
    name = group.decode("utf-8")[len("loc:@"):]
    if name != operation.name and tf.DeviceSpec.from_string(
        operation.graph.get_operation_by_name(name).device or "").job is not None:
      return True
  return False
