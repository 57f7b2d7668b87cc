"""The optimizers that --optimizer chooses by name. This module does not import TensorFlow."""

from __future__ import annotations

from typing import Dict, NamedTuple


class _Choice(NamedTuple):
  """An optimizer."""

  learning_rate: float  # the default
  class_name: str  # of tf1ps.transfer, else of tf.train
  arguments: Dict[str, object] = {}  # other arguments have TensorFlow's defaults


OPTIMIZER_TABLE = {
  "sgd": _Choice(0.01, "GradientDescentOptimizer"),
  "momentum": _Choice(0.01, "MomentumOptimizer", {"momentum": 0.9}),
  "nesterov": _Choice(0.01, "MomentumOptimizer", {"momentum": 0.9, "use_nesterov": True}),
  "adam": _Choice(0.001, "AdamOptimizer"),  # the same results as TensorFlow's, in less time
  "adamw": _Choice(0.001, "AdamWOptimizer", {"weight_decay": 0.01}),
  "lazy_adam": _Choice(0.001, "LazyAdamOptimizer"),  # Adam on the batch's rows only
  "adagrad": _Choice(0.05, "AdagradOptimizer"),
  "adadelta": _Choice(1.0, "AdadeltaOptimizer"),  # the paper's method has no learning rate
  "rmsprop": _Choice(0.001, "RMSPropOptimizer"),  # as in Hinton's lecture
  "ftrl": _Choice(0.05, "FtrlOptimizer"),
  "proximal_sgd": _Choice(0.01, "ProximalGradientDescentOptimizer"),
  "proximal_adagrad": _Choice(0.05, "ProximalAdagradOptimizer"),
}
OPTIMIZERS = tuple(OPTIMIZER_TABLE)
