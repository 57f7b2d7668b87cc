"""Keeps an input pipeline on the worker that it feeds, under any device setter.

TensorFlow's device setter places each variable on a ps, including the counter that ends the data
after `num_epochs`. The counter has the same name on all workers, so all workers share one counter.
Two workers that should each read all the data then each get only a part of it. Operations that are
built in `scope` stay on the worker:

1. A no-op shows which device applies to operations other than variables. Under a device setter, of
   TensorFlow or of tf1ps, this is the setter's worker. The no-op never runs.
2. If the device has no job, the worker is the worker that the device setter of tf1ps has named in
   this graph. If the device has a job and no task ("/job:worker"), the task is the task of this
   process's `tf1ps.Server`, because TensorFlow 1.15 would use the first task of the job.
3. This device is set for everything in the scope. An inner device overrides a device setter.

A pipeline belongs to its session and is in no job's container, so that clearing the container
never affects an operation that waits in a queue.
"""

from __future__ import annotations

import contextlib
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.placement import worker_device_of


@contextlib.contextmanager
def scope(worker_device: Optional[str] = None):
  """Returns a context for building an input pipeline.

  Args:
    worker_device: such as "/job:worker/task:0"; None: the worker, as the module's docstring
      describes; "": no device.

  Raises:
    ValueError, TypeError: `worker_device` is not a device string.
  """
  if worker_device is not None and not isinstance(worker_device, str):
    raise TypeError("worker_device must be a device string such as \"/job:worker/task:0\", or None;"
                    " got %r" % (worker_device,))
  graph = tf.get_default_graph()
  device = device_here(graph) if worker_device is None else worker_device
  try:
    tf.DeviceSpec.from_string(device)
  except ValueError as error:
    raise ValueError("worker_device=%r is not a device string such as \"/job:worker/task:0\": %s"
                     % (device, error)) from None
  # "" is the default container of the task.
  with graph.container(""), tf.device(device or None):
    yield


def device_here(graph: tf.Graph) -> str:
  """Returns the worker's device as the module's docstring describes, or "" if it is unknown."""
  with graph.as_default(), tf.control_dependencies(None):
    anchor = tf.no_op(name="input_anchor")
  here = tf.DeviceSpec.from_string(anchor.device)
  if here.job is None:
    known = tf.DeviceSpec.from_string(worker_device_of(graph) or "")
    return known.make_merged_spec(here).to_string()
  record = latest_record()
  if here.task is None and record is not None and here.job == record.cluster.task.job:
    here = here.replace(task=record.cluster.task.index)
  return here.to_string()
