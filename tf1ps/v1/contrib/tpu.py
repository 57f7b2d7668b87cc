"""`tf.contrib.tpu`: its estimator trains on CPUs and GPUs, with use_tpu=False."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf1ps.v1.estimator.tpu":
          "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec",
      "tf.tpu": "CrossShardOptimizer bfloat16_scope",
      "tf1ps.v1.contrib": "tpu_config=tpu tpu_estimator=tpu tpu_optimizer=tpu",  # its files
    },
    advice="use tf.estimator, without a TPU",
    path="python.tpu")
