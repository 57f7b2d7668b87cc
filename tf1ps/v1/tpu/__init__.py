"""`tf.tpu`: the names that need a TPU refuse at their call."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(
    __name__, tf.tpu,
    {"v1.refused_tpu": [
      "CrossShardOptimizer", "batch_parallel", "cross_replica_sum", "initialize_system",
      "replicate", "rewrite", "shard", "shutdown_system"]},
    namespaces=("experimental",))
