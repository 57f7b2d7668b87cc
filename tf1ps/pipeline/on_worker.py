"""Keeps an input pipeline on the worker that it feeds, whatever device setter is in force.

TensorFlow's own device setter puts each variable on a ps, also the counter that ends the data after
`num_epochs`. It has the same name in all workers, so all of them count with one: two workers that
should read all of the data get a part of it each. What is built in `scope` stays on the worker:

1. An operation without work is made to see what device is in force for anything but variables; with
   a device setter, TensorFlow's or ours, that is its worker. It is never run.
2. Where that names no job, the worker is the one that a device setter of ours in this graph named;
   where it names a job and no task ("/job:worker"), the task is that of this process's
   `tf1ps.Server`, since TensorFlow 1.15 would take the job's first one.
3. That device is named around everything in the scope, and an inner device beats a device setter.

A pipeline is private to its session, and in no job's container: clearing that must not meet an
operation that waits in a queue.
"""

from __future__ import annotations

import contextlib
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import latest_record
from tf1ps.placement import worker_device_of


@contextlib.contextmanager
def scope(worker_device: Optional[str] = None):
  """A context in which an input pipeline is built.

  Args:
    worker_device: such as "/job:worker/task:0"; None: see the module's docstring; "": no device is
      named.

  Raises:
    ValueError: no device string.
    TypeError: neither a string nor None.
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
  # The container stands inside of the graph's: "" is the default one of the task.
  with graph.container(""), tf.device(device or None):
    yield


def device_here(graph: tf.Graph) -> str:
  """The device of the worker as the module's docstring tells it, "" where nothing is known."""
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
