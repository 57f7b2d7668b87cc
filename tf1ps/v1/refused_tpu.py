"""Names by which a program asks for a TPU: a call raises ValueError, and says what to use.

Without this module, a program waits for the address of a TPU, fails in its first step, or silently
runs on the CPU by soft placement. Using such a name without a call is not an error, because many
programs have a branch for TPUs that they do not take. Other programs try `TPUClusterResolver`,
catch its ValueError, and continue with GPUs. They still work.
"""

from __future__ import annotations

import re

import tensorflow.compat.v1 as tf

# "/job:worker/device:TPU:0", "/tpu:0", "device:TPU_REPLICATED_CORE:0"; not "/job:tpu_worker".
_TPU = re.compile(r"(?:^|/)(?:device:)?TPU(?:_\w+)?(?::|$)", re.IGNORECASE)


def _error(name: str, advice: str) -> ValueError:
  return ValueError(
    "%s is for TPUs, and tf1ps runs parameter servers on CPUs and GPUs. %s; for TPUs use "
    "TensorFlow's own TPUStrategy, without tf1ps." % (name, advice))


def check_estimator(use_tpu) -> None:
  """Raises ValueError for a TPUEstimator that asks for a TPU, as it does by default."""
  if use_tpu:
    raise _error("TPUEstimator with use_tpu=%r" % (use_tpu,), "Pass use_tpu=False")


def device(device_name_or_function):
  """`tf.device`, which raises ValueError for the name of a TPU."""
  if isinstance(device_name_or_function, str) and _TPU.search(device_name_or_function):
    raise _error("The device %r" % device_name_or_function,
                 'Name a CPU or a GPU, such as "/device:GPU:0"')
  return tf.device(device_name_or_function)


# The following names are classes, because programs ask isinstance(strategy, TPUStrategy).
class TPUStrategy(tf.distribute.experimental.TPUStrategy):
  """Refuses."""

  def __new__(cls, *unused_args, **unused_kwargs):
    raise _error("tf.distribute.TPUStrategy",
                 "For the devices of one machine use tf1ps.replication.build_mirrored")


class TPUClusterResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
  """Refuses."""

  def __new__(cls, *unused_args, **unused_kwargs):
    raise _error("TPUClusterResolver", "Name the tasks in TF_CONFIG or in a tf.train.ClusterSpec")


class CrossShardOptimizer(tf.tpu.CrossShardOptimizer):
  """Refuses."""

  def __new__(cls, *unused_args, **unused_kwargs):
    raise _error("CrossShardOptimizer",
                 "Use the optimizer inside it, or tf.train.SyncReplicasOptimizer")


def _refusing(name: str):
  def refuse(*unused_args, **unused_kwargs):
    raise _error("tf.tpu." + name, "Leave this call out")

  refuse.__name__ = name
  return refuse


batch_parallel = _refusing("batch_parallel")
cross_replica_sum = _refusing("cross_replica_sum")
initialize_system = _refusing("initialize_system")
replicate = _refusing("replicate")
rewrite = _refusing("rewrite")
shard = _refusing("shard")
shutdown_system = _refusing("shutdown_system")
initialize_tpu_system = _refusing("experimental.initialize_tpu_system")
shutdown_tpu_system = _refusing("experimental.shutdown_tpu_system")
