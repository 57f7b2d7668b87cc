"""`tf.contrib.tpu`: its estimator trains on CPUs and GPUs, with use_tpu=False."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    drop_ins={
      "v1.estimator.tpu": ["TPUEstimator"],  # on TensorFlow 1.15, too: it refuses a TPU
      "v1.refused_tpu": [
        "CrossShardOptimizer", "batch_parallel", "cross_replica_sum", "initialize_system",
        "replicate", "rewrite", "shard", "shutdown_system"],
    },
    heirs={
      "tf1ps.v1.estimator.tpu": "InputPipelineConfig RunConfig TPUConfig TPUEstimatorSpec",
      "tf.tpu": "bfloat16_scope",
      "tf1ps.v1.contrib": "tpu_config=tpu tpu_estimator=tpu tpu_optimizer=tpu",  # its files
    },
    advice="use tf.estimator, without a TPU",
    path="python.tpu")
