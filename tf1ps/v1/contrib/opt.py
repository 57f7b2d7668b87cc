"""`tf.contrib.opt`: the optimizers that legacy programs use."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf1ps.transfer": "LazyAdamOptimizer",
      "tf1ps.v1.contrib.optimizers":
          "AdamWOptimizer DecoupledWeightDecayExtension MomentumWOptimizer "
          "clip_gradients_by_global_norm extend_with_decoupled_weight_decay",
    },
    advice="use an optimizer of tf.train")
