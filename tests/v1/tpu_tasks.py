"""What the tests of TPUs run as a process: importing tf1ps.v1 changes TensorFlow's mode."""
from __future__ import annotations

import operator

import pytest
import tensorflow.compat.v1 as stock

# {what a program calls: (its arguments, the advice)}
CALLS = {
  "distribute.TPUStrategy": ([], "use tf1ps.replication.build_mirrored;"),
  "distribute.experimental.TPUStrategy": (["resolver"], "use tf1ps.replication.build_mirrored;"),
  "distribute.cluster_resolver.TPUClusterResolver": (["no-such-tpu"], "TF_CONFIG"),
  "contrib.cluster_resolver.TPUClusterResolver": (["no-such-tpu"], "TF_CONFIG"),
  "compat.v1.distribute.cluster_resolver.TPUClusterResolver": ([], "TF_CONFIG"),
  "tpu.CrossShardOptimizer": (["optimizer"], "Use the optimizer inside it"),
  "contrib.tpu.CrossShardOptimizer": (["optimizer"], "Use the optimizer inside it"),
  "tpu.initialize_system": ([], "Leave this call out;"),
  "contrib.tpu.initialize_system": ([], "Leave this call out;"),
  "tpu.rewrite": ([lambda: 1], "Leave this call out;"),
  "tpu.experimental.initialize_tpu_system": ([], "Leave this call out;"),
  "device": (["/device:TPU:0"], '"/device:GPU:0"'),
}
TPUS = ("/tpu:1", "/job:worker/task:0/device:TPU:0", "device:TPU_REPLICATED_CORE:0", "TPU:0")
OTHERS = ("/job:tpu_worker/task:0", "/device:CPU:0", None, lambda op: "/cpu:0",
          stock.DeviceSpec(job="ps"))
ALL = "runs parameter servers on CPUs and GPUs. "


def calls():
  import tf1ps.v1 as tf
  for name, (arguments, advice) in CALLS.items():
    with pytest.raises(ValueError) as raised:
      operator.attrgetter(name)(tf)(*arguments)
    assert ALL in str(raised.value) and advice in str(raised.value), raised.value
    assert name.rpartition(".")[2] in str(raised.value).replace("The device", "device")
  for text in TPUS:
    with pytest.raises(ValueError, match="The device '%s' is for TPUs" % text):
      tf.device(text)
  for other in OTHERS:
    with tf.device(other):
      tf.constant(1)


def all_else_works():
  """Branches for TPUs that a program does not take, and what it goes on with."""
  import tf1ps.v1 as tf
  from tf1ps.v1.distribute.cluster_resolver import TPUClusterResolver
  from tf1ps.v1.distribute.experimental import CentralStorageStrategy
  assert CentralStorageStrategy is stock.distribute.experimental.CentralStorageStrategy
  assert issubclass(TPUClusterResolver, stock.distribute.cluster_resolver.TPUClusterResolver)
  strategy = tf.distribute.get_strategy()
  assert not isinstance(strategy, tf.distribute.experimental.TPUStrategy)
  assert tf.tpu.bfloat16_scope is stock.tpu.bfloat16_scope
  with tf.device("/device:CPU:0"), tf.Session() as session:
    assert session.run(tf.constant(7)) == 7


def estimators():
  import tf1ps.v1 as tf
  for tpu in (tf.contrib.tpu, tf.estimator.tpu):
    for arguments in ({}, {"use_tpu": True}):
      with pytest.raises(ValueError, match=ALL + "Pass use_tpu=False;"):
        tpu.TPUEstimator(lambda features: None, config=tpu.RunConfig(), train_batch_size=8,
                         **arguments)
