"""Keeps local variables on the worker.

A variable is local if it is not in the collection GLOBAL_VARIABLES: the totals of `tf.metrics`,
the epoch counter of `tf.train.limit_epochs`, any variable with `collections=[]`. All workers give
it the same name, so on a ps they would all share it.

A device function sees an op before TensorFlow adds it to collections, so it cannot recognise a
local variable. A variable creator receives the collections as an argument. So:

1. A device setter calls `install` when it is made and for each graph in which it is used. `install`
   enters a `tf.variable_creator_scope`, once per graph and thread, like TensorFlow's scopes.
2. The creator notes whether a variable is local while the variable is made.
3. The setter then sees the op of the variable and asks `being_made`. A local variable goes to the
   worker, as do ops that are not in `ps_ops`.
4. A local variable outside any setter, with no device scope that names a job, goes to the worker
   device of the graph's last setter. To read the current device, the creator makes a no-op called
   `local_variable_anchor`. (TensorFlow 1.15 derives the seeds of random ops from the number of ops
   before them, so on 1.15 the anchor changes these seeds.)

The creator also puts global variables into the container of this process's `tf1ps.Server`, if the
server has a container. So a legacy script names the container once, at its server.

Two kinds of variables do not pass a creator, and the setter treats them as global: variables that
`tf.train.import_meta_graph` imports with cleared devices, and variables in a subclass of
`tf.Graph`.
"""

from __future__ import annotations

import threading

import tensorflow.compat.v1 as tf

from tf1ps.cluster import job_container

# The attribute of a graph that holds its _LocalVariables. TensorFlow calls creators and device
# functions by the graph alone, so the graph is the only value that reaches both; and the open
# creator scope must end with the graph.
_ATTRIBUTE = "_tf1ps_local_variables"

# TensorFlow calls the device function inside of the creator and passes it only the op.
_making = threading.local()


def install(graph, worker_device=None, replace=False):
  """Enters the creator scope on the graph, unless this thread has done so before.

  Args:
    graph: the `tf.Graph`. A function's graph uses the creators of its outer graph.
    worker_device: the device of local variables for which no device scope names a job, such as
      "/job:worker/task:0". None: keeps the graph's present device.
    replace: whether `worker_device` replaces the graph's present device.
  """
  if type(graph) is not tf.Graph:
    return
  installed = getattr(graph, _ATTRIBUTE, None)
  if installed is None:
    installed = _LocalVariables()
    setattr(graph, _ATTRIBUTE, installed)
  if replace or installed.worker_device is None:
    installed.worker_device = worker_device
  installed.enter(graph)


def has_setter(graph) -> bool:
  """Whether a device setter of tf1ps was used on a graph."""
  return getattr(graph, _ATTRIBUTE, None) is not None


def being_made():
  """Returns whether this thread is making a local variable."""
  return getattr(_making, "local", False)


def worker_device_of(graph):
  """Returns the worker device of the graph's last device setter; None without a setter."""
  installed = getattr(graph, _ATTRIBUTE, None)
  return installed.worker_device if installed is not None else None


class _LocalVariables(object):
  """The variable creator of a graph, and the generators that hold its scopes open."""

  def __init__(self):
    self.worker_device = None
    self._entered = threading.local()

  def enter(self, graph):
    """Enters the creator scope on `graph`, once in each thread."""
    if hasattr(self._entered, "scope"):
      return
    # A suspended generator keeps its scope open as long as it is referenced.
    self._entered.scope = _hold_open(self._create)
    with graph.as_default():
      next(self._entered.scope)

  def _create(self, next_creator, **kwargs):
    """Makes a variable; meanwhile `being_made` says whether it is local."""
    outer = being_made()
    _making.local = _is_local(kwargs.get("collections")) and not tf.executing_eagerly()
    try:
      if _making.local and self.worker_device:
        with tf.device(_device_with_job(self.worker_device)):
          return next_creator(**kwargs)
      container = "" if _making.local else job_container()
      if container:
        with tf.container(container):
          return next_creator(**kwargs)
      return next_creator(**kwargs)
    finally:
      _making.local = outer


def _hold_open(creator):
  """Yields inside of a creator scope; closing the generator exits the scope."""
  scope = tf.variable_creator_scope(creator)
  scope.__enter__()
  try:
    yield
  finally:
    try:
      scope.__exit__(None, None, None)
    except (AttributeError, RuntimeError):
      # The graph was collected, or the thread ended. TensorFlow then no longer finds the scope,
      # and there is nothing to restore.
      pass


def _is_local(collections):
  """Returns whether a variable with these collections is local; None means global."""
  # TensorFlow itself refuses all other types.
  return (isinstance(collections, (list, tuple, set))
          and tf.GraphKeys.GLOBAL_VARIABLES not in collections)


def _device_with_job(worker_device):
  """Returns the worker device merged with the current device, or "" if the latter names a job."""
  with tf.control_dependencies(None):
    anchor = tf.no_op(name="local_variable_anchor")
  here = tf.DeviceSpec.from_string(anchor.device)
  if here.job is not None:
    return ""
  return tf.DeviceSpec.from_string(worker_device).make_merged_spec(here).to_string()
