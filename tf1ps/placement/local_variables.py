"""Keeps local variables on the worker.

A variable is local if it is not in the collection GLOBAL_VARIABLES: the totals of `tf.metrics`,
the epoch counter of `tf.train.limit_epochs`, whatever was made with `collections=[]`. Under the
names that all workers share, such a variable on a ps is one variable for all of them.

A device function cannot tell it from a global one, as it sees an op before the op's collections
are known. A variable creator is given the collections. So:

1. A device setter calls `install` when it is made and for each graph in which it is used. That
   enters a `tf.variable_creator_scope` on the graph, once for each graph (and for each thread
   that builds it, as TensorFlow keeps these scopes by thread).
2. For each variable the creator notes, while the variable is being made, whether it is local.
3. The setter sees the op of the variable, asks `being_made`, and treats the op of a local
   variable like any op that is not a ps op: it belongs to the setter's worker, completed or
   overridden by the devices that the caller has set inside the setter's scope.
4. A local variable that is made outside of any setter, where no device names a job, goes to the
   worker device of the setter that was made last in this graph. To learn whether a job is
   named, the creator makes an op without work there, called `local_variable_anchor`, and reads
   its device. It is never run. (It is an op all the same: TensorFlow 1.15 derives the seeds of
   random ops from the number of ops before them; 2.x does not.)

The same creator puts global variables into the container of this process's `tf1ps.Server`, where
that was given one: a legacy script says it there, and builds its graph as before.

What was installed hangs on the graph and goes with it. Two things do not pass a creator and stay
where the setter would put any variable: variables that `tf.train.import_meta_graph` brings with
their devices cleared, and those that are made in a subclass of `tf.Graph`.
"""

from __future__ import annotations

import threading

import tensorflow.compat.v1 as tf

from tf1ps.cluster import job_container

# The attribute of a graph that holds its _LocalVariables.
_ATTRIBUTE = "_tf1ps_local_variables"

_making = threading.local()


def install(graph, worker_device=None, replace=False):
  """Enters the creator on the graph, unless this thread has done so before.

  Args:
    graph: `tf.Graph`. Graphs of functions are left alone: they use the creators of the graph
      around them.
    worker_device: string, such as "/job:worker/task:0": the device of the local variables that
      are made where no device names a job. None: leaves what is known.
    replace: whether `worker_device` counts even if the graph already knows one.
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


def being_made():
  """Returns whether this thread is just making a local variable."""
  return getattr(_making, "local", False)


def worker_device_of(graph):
  """Returns the worker device that the graph's last device setter named; None without one."""
  installed = getattr(graph, _ATTRIBUTE, None)
  return installed.worker_device if installed is not None else None


class _LocalVariables(object):
  """The creator of one graph, and what holds its scope open."""

  def __init__(self):
    self.worker_device = None
    self._entered = threading.local()

  def enter(self, graph):
    """Enters the creator scope on `graph`, once in each thread."""
    if hasattr(self._entered, "scope"):
      return
    # Left in the middle, a generator keeps its scope open for as long as somebody refers to it.
    self._entered.scope = _hold_open(self._create)
    with graph.as_default():
      next(self._entered.scope)

  def _create(self, next_creator, **kwargs):
    """Makes a variable, and the setters know meanwhile whether it is local."""
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
  """Yields inside of a creator scope; closing the generator leaves the scope."""
  scope = tf.variable_creator_scope(creator)
  scope.__enter__()
  try:
    yield
  finally:
    try:
      scope.__exit__(None, None, None)
    except (AttributeError, RuntimeError):
      # The graph was collected, or the thread ended. In another thread, or so late, TensorFlow
      # does not find the scope that it leaves; there is nothing left that could be restored.
      pass


def _is_local(collections):
  """Returns whether a variable with these collections is local; None means global."""
  # Anything but these three is refused by TensorFlow itself.
  return (isinstance(collections, (list, tuple, set))
          and tf.GraphKeys.GLOBAL_VARIABLES not in collections)


def _device_with_job(worker_device):
  """Returns the worker device completed by the devices set here, "" if these name a job."""
  with tf.control_dependencies(None):
    anchor = tf.no_op(name="local_variable_anchor")
  here = tf.DeviceSpec.from_string(anchor.device)
  if here.job is not None:
    return ""
  return tf.DeviceSpec.from_string(worker_device).make_merged_spec(here).to_string()
