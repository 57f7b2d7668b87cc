"""How an estimator's variables are placed, and how its steps are made.

An estimator's model_fn makes the update itself, with its own optimizer. So the options act around
the model_fn: on the device setter, on the calls of `apply_gradients` inside of the model_fn, on the
complete graph, and on the session.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Iterator, List

import tensorflow.compat.v1 as tf

from tf1ps import cluster as cluster_lib
from tf1ps import placement, replication, session, transfer
from tf1ps.v1.estimator import estimator_options as options_lib
from tf1ps.v1.estimator import steps_per_run


def make_device_setter(config):
  """Returns the device function of an estimator with this RunConfig; None without a ps."""
  if not config.num_ps_replicas:
    return None
  task = "/job:worker"
  if config.task_type:
    task = "/job:%s/task:%d" % (config.task_type, config.task_id)
  return placement.replica_device_setter(
    worker_device=task, cluster=config.cluster_spec,
    ps_strategy=options_lib.current_options().ps_strategy)


_building: List[tf.Graph] = []  # a process global: an estimator has no argument for it


def build_model(mode: str, call):
  """Calls a model_fn by `call`, and bounds the staleness of its updates.

  The model_fn of an estimator may call the model_fn of another estimator, as in
  `tf.estimator.add_metrics`. Only the outermost model_fn makes the update.

  Returns the EstimatorSpec.
  """
  options, graph = options_lib.current_options(), tf.get_default_graph()
  if mode != "train" or cluster_lib.latest_record() is None or graph in _building:
    return call()
  _building.append(graph)
  try:
    with _gradients_by(options):
      spec = call()
  finally:
    _building.remove(graph)
  cluster = cluster_lib.latest_record().cluster
  if options.staleness.max_lead is None:  # with max_lead, each step waits for other workers' steps
    spec = steps_per_run.hand_over(spec)
  if options.staleness.max_lead and cluster.num_replicas > 1:
    clocks = replication.Clocks(
      tf.train.get_global_step(), cluster.num_replicas, cluster.replica_index)
    hook = replication.LeadHook(
      clocks, clocks.advance(spec.train_op), options.staleness.max_lead, options.start_timeout,
      expects_all=False)  # a worker begins seconds after the worker before it
    spec = spec._replace(training_hooks=[*spec.training_hooks, hook])
  return spec


@contextlib.contextmanager
def _gradients_by(options) -> Iterator[None]:
  """Makes optimizers drop old gradients, according to the options."""
  if options.staleness.drop is None:
    yield
    return
  begun = replication.begin_gradient_age(tf.train.get_global_step())
  stock = tf.train.Optimizer.apply_gradients

  @functools.wraps(stock)
  def apply_gradients(optimizer, grads_and_vars, global_step=None, name=None):
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
    if any(gradient is not None and tf.DeviceSpec.from_string(gradient.device or "").job == "ps"
           for gradient, _ in pairs):
      return stock(optimizer, pairs, global_step, name)  # inside of an update that is on the ps
    # An update in a branch keeps a message per gradient, unless the gradients are packed before it.
    pairs = transfer.pack_gradients(pairs, options.pack_bytes)
    with _method_of_optimizers(stock):
      return _apply(optimizer, pairs, global_step, name, options.staleness.drop, begun)

  with _method_of_optimizers(apply_gradients):
    yield


def _apply(optimizer, pairs, global_step, name, max_staleness, begun):
  if global_step is None:
    raise ValueError(
      "staleness_policy=drop:%d needs the global step in each update of the model_fn: "
      "optimizer.minimize(loss, global_step=tf.train.get_global_step())" % max_staleness)
  age = replication.age_at_push(global_step, begun, [gradient for gradient, _ in pairs])
  return replication.apply_unless_older(optimizer, pairs, global_step, age, max_staleness).train_op


@contextlib.contextmanager
def _method_of_optimizers(apply_gradients):
  """Gives an `apply_gradients` to all optimizers that do not define this method."""
  before = tf.train.Optimizer.apply_gradients
  tf.train.Optimizer.apply_gradients = apply_gradients
  try:
    yield
  finally:
    tf.train.Optimizer.apply_gradients = before


_is_only_training = False  # a process global: an estimator has no argument for it


@contextlib.contextmanager
def only_training() -> Iterator[None]:
  """Makes the end of a training session the end of this task's part in the job."""
  global _is_only_training
  _is_only_training = True
  try:
    yield
  finally:
    _is_only_training = False


def MonitoredTrainingSession(**arguments):  # noqa: N802  TensorFlow's name
  """Makes the session of `Estimator.train`: tf1ps' own, with the limits of the options."""
  options = options_lib.current_options()
  record = cluster_lib.latest_record()
  if record is not None:
    arguments["hooks"] = steps_per_run.take_over(
      arguments.get("hooks") or [], arguments.get("chief_only_hooks") or [], record.cluster,
      options.steps_per_execution)
  return session.MonitoredTrainingSession(
    start_timeout=options.start_timeout, end_timeout=options.end_timeout,
    heartbeat_timeout=options.heartbeat_timeout, expects_all=False, ends_job=_is_only_training,
    pack_bytes=options.pack_bytes, **arguments)
