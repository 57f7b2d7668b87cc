"""The config that the server and every session share, and the environment that precedes them.

TensorFlow reads its settings at three times:

  1. at its import or its first server, from the environment, such as `grpc_environment`;
  2. at the start of the server, which fixes threads and GPU memory of the process, from
     `make_session_config`;
  3. at each session: timeouts, placement, device filters, from the same config.

Threads and GPU memory in the config of a gRPC session have no effect, because its server has set
them. So a single function makes the config of the server and of all sessions.

A session contacts every task that its device filters show, and waits for each without a limit.
`make_device_filters` makes filters from the devices of the session's graph, so that the session
waits only for the tasks that it needs:

  1. this task and the control task, always;
  2. each task that a device in the graph names, even inside functions that the graph calls;
  3. all tasks of another job that a device names without a task, because TensorFlow may choose any.

A device that names neither a job nor a task adds nothing. This task's own job without a task means
this task: if the filters hide the other tasks, TensorFlow 1 and 2 both choose this task.
"""

from __future__ import annotations

import os
from typing import Dict, List, Optional, Sequence, Set

from tf1ps.cluster.description import Cluster, ClusterError, Task

_GRPC_OPTIONS = "TF_GRPC_DEFAULT_OPTIONS"
_GRPC_VALUES = {  # milliseconds
  # The silence during a call until a ping is sent. A server treats more pings as an attack.
  "keepalive_time": 10000,
  "keepalive_timeout": 5000,  # for the ping's answer, and for the other kernel to confirm data
  # The pause after the first failed try to connect; it grows up to TensorFlow's one second.
  "initial_reconnect_backoff": 100,
}


def make_session_config(
  gpu_memory_fraction: Optional[float] = None,
  gpu_growth: Optional[bool] = None,
  inter_op_parallelism_threads: Optional[int] = None,
  intra_op_parallelism_threads: Optional[int] = None,
  soft_placement: Optional[bool] = None,
  log_device_placement: Optional[bool] = None,
  operation_timeout_secs: Optional[float] = None,
  device_filters: Optional[Sequence[str]] = None,
  base=None,
):
  """Makes the config of the server and of every session; returns a new `tf.ConfigProto`.

  An argument that is None leaves the field as it is in `base`, or at TensorFlow's default.

  Args:
    gpu_memory_fraction: the part of each GPU's memory that the process takes at its start, in
      (0, 1].
    gpu_growth: whether the process takes GPU memory as it needs it.
    inter_op_parallelism_threads: threads that run ops side by side, at least 1.
    intra_op_parallelism_threads: threads inside an op, at least 1.
    soft_placement: whether an op without a kernel on its device may run elsewhere on its task. None
      without a `base`: True.
    log_device_placement: whether each op's device is logged.
    operation_timeout_secs: seconds after which a run fails, even if the run would have survived a
      pause of the ps.
    device_filters: the devices that a session sees; see `make_device_filters`.
    base: the user's `tf.ConfigProto`, which is copied. None: an empty config.

  Raises:
    ValueError: a number is out of its range.
  """
  import tensorflow.compat.v1 as tf  # late: other functions here run before TensorFlow's import

  config = tf.ConfigProto()
  if base is not None:
    config.CopyFrom(base)
  elif soft_placement is None:
    soft_placement = True
  if gpu_memory_fraction is not None:
    if not 0 < gpu_memory_fraction <= 1:
      raise ValueError(f"gpu_memory_fraction is {gpu_memory_fraction}: it must be above 0 and at "
                       "most 1")
    config.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
  if gpu_growth is not None:
    config.gpu_options.allow_growth = gpu_growth
  _set_threads(config, "inter_op", inter_op_parallelism_threads)
  _set_threads(config, "intra_op", intra_op_parallelism_threads)
  if soft_placement is not None:
    config.allow_soft_placement = soft_placement
  if log_device_placement is not None:
    config.log_device_placement = log_device_placement
  if operation_timeout_secs is not None:
    if not operation_timeout_secs > 0:
      raise ValueError(f"operation_timeout_secs is {operation_timeout_secs}: it must be above 0")
    config.operation_timeout_in_ms = _milliseconds(operation_timeout_secs)
  if device_filters is not None:
    del config.device_filters[:]
    config.device_filters.extend(device_filters)
  return config


def without_placement_log(config):
  """Returns a `tf.ConfigProto` or None as it is, except that `log_device_placement` is off.

  It is for a server, which would log the operations of all sessions, including sessions of tf1ps,
  and for sessions in which only tf1ps makes runs.
  """
  if config is None or not config.log_device_placement:
    return config
  return make_session_config(base=config, log_device_placement=False)


def make_small_config(tasks: Sequence[str]):
  """Makes the config of a session that runs a few small operations of tf1ps itself.

  The config disables TensorFlow's graph optimizer, which would take longer than the runs.

  Args:
    tasks: the names of the tasks that the session sees.

  Returns:
    A new `tf.ConfigProto`.
  """
  import tensorflow.compat.v1 as tf

  config = tf.ConfigProto(device_filters=sorted(tasks))
  config.graph_options.rewrite_options.disable_meta_optimizer = True
  return config


def _set_threads(config, pool, threads):
  """Sets the size of a pool, "inter_op" or "intra_op", and checks the result."""
  field = f"{pool}_parallelism_threads"
  if threads is not None:
    if threads < 1:
      raise ValueError(f"{field} is {threads}: it must be at least 1")
    setattr(config, field, threads)
  elif getattr(config, field) < 0:
    # TensorFlow allows a negative number for a session in this process; a server ends the process.
    raise ValueError(f"{field} is {getattr(config, field)} in the given config, which ends the "
                     "process of a server: it must be at least 1, or 0 for TensorFlow's choice")


def grpc_environment() -> Dict[str, str]:
  """Returns the variable with the options of calls between tasks, for TensorFlow 2.

  With it, calls to a silent task fail. Without it, a call over a cut cable waits for as long as the
  system retries to send. With it, a task that comes back is also reached sooner than after a
  second. TensorFlow 1.15 ignores the variable.

  Returns:
    The variable to add to the environment before TensorFlow creates a server or a session; {} if
    the user has set the variable.
  """
  return {} if _GRPC_OPTIONS in os.environ else {_GRPC_OPTIONS: ",".join(
    f"grpc.{name}_ms={value}" for name, value in _GRPC_VALUES.items())}


def _milliseconds(seconds):
  return max(1, round(seconds * 1000))


def make_device_filters(graph, cluster: Cluster) -> List[str]:
  """Returns the filters of a session that runs this graph.

  Args:
    graph: the complete `tf.Graph`.
    cluster: the cluster, with the task that opens the session.

  Returns:
    Such as ["/job:ps/task:0", "/job:worker/task:1"], by job and index, for
    `tf.ConfigProto.device_filters`.

  Raises:
    ClusterError: an op's device names a task that is not in the cluster.
  """
  tasks = {cluster.task, cluster.control_task}
  for device, op_name in _devices(graph).items():
    try:
      tasks |= _tasks(device, cluster)
    except ClusterError as error:
      raise ClusterError(f'the op "{op_name}" is placed on "{device}", but {error}') from error
  return [task.name for task in sorted(tasks)]


def filters_show_task(filters: Sequence[str], task: Task) -> bool:
  """Returns whether a session with these filters sees a task."""
  import tensorflow.compat.v1 as tf

  specs = [tf.DeviceSpec.from_string(text) for text in filters]
  return any(spec.job in (None, task.job) and spec.task in (None, task.index) for spec in specs)


def _devices(graph) -> Dict[str, str]:
  """Returns each device of the graph and its functions, with the name of an op on that device."""
  from tf1ps.graph import FUNCTION_CALLERS  # late: it imports TensorFlow

  ops = graph.get_operations()
  devices = {op.device: op.name for op in reversed(ops)}
  # This copies the whole graph, so it happens only if the graph calls functions.
  if any(op.type in FUNCTION_CALLERS for op in ops):
    for function in graph.as_graph_def().library.function:
      for node in function.node_def:
        devices.setdefault(node.device, f"{function.signature.name}/{node.name}")
  return devices


def _tasks(device, cluster) -> Set[Task]:
  """Returns the tasks on which TensorFlow may place an op with this device."""
  import tensorflow.compat.v1 as tf

  spec = tf.DeviceSpec.from_string(device)
  if spec.job is None and spec.task is None:
    return set()
  if spec.job is None:  # a task of any job
    return {task for task in cluster.tasks() if task.index == spec.task}
  if spec.task is not None:
    return {cluster.find(spec.job, spec.task)}
  if spec.job == cluster.task.job:
    return {cluster.task}
  tasks = set(cluster.tasks(spec.job))
  if not tasks:
    raise ClusterError(f"the cluster has no job {spec.job}, only {', '.join(sorted(cluster.jobs))}")
  return tasks
