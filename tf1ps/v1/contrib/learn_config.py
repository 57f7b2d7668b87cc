"""`tf.contrib.learn.RunConfig` and `ModeKeys`, based on the classes of tf.estimator."""

from __future__ import annotations

import contextlib
import json
import os
import sys

import tensorflow.compat.v1 as tf

import tf1ps.v1 as tf1
from tf1ps import cluster as _cluster

__path__ = []  # legacy programs import estimators.run_config as a module
run_config = model_fn = sys.modules[__name__]


class ModeKeys(tf1.estimator.ModeKeys):
  """The modes of a model_fn."""

  INFER = tf1.estimator.ModeKeys.PREDICT


class TaskType:
  """The jobs of a cluster."""

  MASTER = "master"
  PS = "ps"
  WORKER = "worker"


class RunConfig(tf1.estimator.RunConfig):
  """A RunConfig of tf.estimator that takes the arguments of tf.contrib.learn.

  If TF_CONFIG names neither a chief nor a master, worker 0 is the chief.

  Args:
    master: empty, or the address of this task, because TF_CONFIG names the cluster.
    num_cores: the number of threads of a session; 0 leaves it to TensorFlow.
    log_device_placement: whether sessions log where each operation runs.
    gpu_memory_fraction: the part of a GPU's memory that a session may take.
    evaluation_master: must be empty.
    session_config: a ConfigProto, which replaces the three settings of sessions.
    **fields: fields of `tf.estimator.RunConfig`.

  Raises:
    ValueError: `master` is another task's address, or `evaluation_master` is not empty.
  """

  def __init__(self, master=None, num_cores=0, log_device_placement=False, gpu_memory_fraction=1,
               evaluation_master="", session_config=None, **fields):
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    for name, value in (("master", master), ("evaluation_master", evaluation_master)):
      if value and not (name == "master" and _is_own_address(value, config)):
        raise ValueError("%s=%r: name the cluster in TF_CONFIG, and leave %s out" % (
          name, value, name))
    if session_config is None and (num_cores or log_device_placement or gpu_memory_fraction != 1):
      session_config = tf.ConfigProto(
        inter_op_parallelism_threads=num_cores, intra_op_parallelism_threads=num_cores,
        log_device_placement=log_device_placement,
        gpu_options=tf.GPUOptions(per_process_gpu_memory_fraction=gpu_memory_fraction))
    with _worker_0_as_chief(config):
      super().__init__(session_config=session_config, **fields)

  @property
  def tf_config(self):
    """The configuration of sessions."""
    return self.session_config


def _is_own_address(master: str, config: dict) -> bool:
  task = config.get("task") or {}
  addresses = (config.get("cluster") or {}).get(task.get("type")) or []
  index = int(task.get("index") or 0)
  return _cluster.record_of(master) is not None or (
    index < len(addresses) and master in (addresses[index], "grpc://" + addresses[index]))


@contextlib.contextmanager
def _worker_0_as_chief(config: dict):
  """Names worker 0 "chief" in TF_CONFIG while tf.estimator, which needs a chief, reads it."""
  if not config.get("cluster") or not config.get("task"):
    yield
    return
  before = os.environ["TF_CONFIG"]
  os.environ["TF_CONFIG"] = _cluster.with_chief(before)
  try:
    yield
  finally:
    os.environ["TF_CONFIG"] = before
