"""How an estimator's variables are placed, its gradients travel, and its steps are made.

An estimator's model_fn makes the update itself, with an optimizer of its own. So the options act
around it: on the device setter, on the calls of `apply_gradients` inside of the model_fn, on the
complete graph, and on the session.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Iterator

import tensorflow.compat.v1 as tf

from tf1ps import cluster as cluster_lib
from tf1ps import placement, replication, session, transfer
from tf1ps.v1.estimator import options as options_lib


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


def build_model(mode: str, call):
  """Calls a model_fn by `call`; packs what its update sends, and bounds the staleness.

  Returns the EstimatorSpec.
  """
  options = options_lib.current_options()
  if mode != "train" or cluster_lib.latest_record() is None:
    return call()
  with _gradients_by(options):
    spec = call()
  if options.pack_bytes:
    transfer.fetch_variables(options.pack_bytes)
    transfer.keep_constants_local()
  cluster = cluster_lib.latest_record().cluster
  if options.staleness.max_lead and cluster.num_replicas > 1:
    clocks = replication.Clocks(
      tf.train.get_global_step(), cluster.num_replicas, cluster.replica_index)
    hook = replication.LeadHook(
      clocks, clocks.advance(spec.train_op), options.staleness.max_lead, options.start_timeout,
      expects_all=False)  # a worker begins seconds after the one before
    spec = spec._replace(training_hooks=[*spec.training_hooks, hook])
  return spec


@contextlib.contextmanager
def _gradients_by(options) -> Iterator[None]:
  """Has optimizers pack their gradients, and drop old ones, as the options say."""
  if not options.pack_bytes and options.staleness.drop is None:
    yield
    return
  begun = replication.begin_gradient_age(tf.train.get_global_step())
  stock = tf.train.Optimizer.apply_gradients

  @functools.wraps(stock)
  def apply_gradients(optimizer, grads_and_vars, global_step=None, name=None):
    pairs = [(gradient, variable) for gradient, variable in grads_and_vars]
    if any(gradient is not None and _is_on_ps(gradient) for gradient, _ in pairs):
      return stock(optimizer, pairs, global_step, name)  # inside of an update that is on the ps
    if options.pack_bytes:
      pairs = transfer.pack_gradients(pairs, options.pack_bytes)
    with _method_of_optimizers(stock):
      return _apply(optimizer, pairs, global_step, name, options.staleness.drop, begun)

  with _method_of_optimizers(apply_gradients):
    yield


def _apply(optimizer, pairs, global_step, name, max_staleness, begun):
  if max_staleness is None:
    return optimizer.apply_gradients(pairs, global_step, name)
  if global_step is None:
    raise ValueError(
      "staleness_policy=drop:%d needs the global step in each update of the model_fn: "
      "optimizer.minimize(loss, global_step=tf.train.get_global_step())" % max_staleness)
  age = replication.age_at_push(global_step, begun, [gradient for gradient, _ in pairs])
  return replication.apply_unless_older(
    optimizer, pairs, global_step, age, max_staleness).train_op


@contextlib.contextmanager
def _method_of_optimizers(apply_gradients):
  """Gives all optimizers an `apply_gradients`, but for those with one of their own."""
  before = tf.train.Optimizer.apply_gradients
  tf.train.Optimizer.apply_gradients = apply_gradients
  try:
    yield
  finally:
    tf.train.Optimizer.apply_gradients = before


def _is_on_ps(gradient) -> bool:
  return tf.DeviceSpec.from_string(gradient.device or "").job == "ps"


_is_only_training = False  # a process global: an estimator has no argument for it


@contextlib.contextmanager
def only_training() -> Iterator[None]:
  """Has the end of a training session be the end of this task's part in the job."""
  global _is_only_training
  _is_only_training = True
  try:
    yield
  finally:
    _is_only_training = False


def MonitoredTrainingSession(**arguments):  # noqa: N802  TensorFlow's name
  """Makes the session of `Estimator.train`: tf1ps' own, with the limits of the options."""
  options = options_lib.current_options()
  return session.MonitoredTrainingSession(
    start_timeout=options.start_timeout, end_timeout=options.end_timeout,
    heartbeat_timeout=options.heartbeat_timeout, expects_all=False, ends_job=_is_only_training,
    **arguments)
