"""The optimizers that --optimizer chooses by name. This module does not import TensorFlow."""

from __future__ import annotations

import math
from typing import Dict, NamedTuple

from tf1ps.cluster import nearest_name


class _Choice(NamedTuple):
  """An optimizer."""

  learning_rate: float  # the default
  class_name: str  # of tf1ps.transfer, else of tf.train
  arguments: Dict[str, object] = {}  # other arguments have TensorFlow's defaults
  number: str = ""  # the argument that may stand behind the name, such as adamw:0.05


OPTIMIZER_TABLE = {
  "sgd": _Choice(0.01, "GradientDescentOptimizer"),
  "momentum": _Choice(0.01, "MomentumOptimizer", {"momentum": 0.9}, "momentum"),
  "nesterov": _Choice(
    0.01, "MomentumOptimizer", {"momentum": 0.9, "use_nesterov": True}, "momentum"),
  "adam": _Choice(0.001, "AdamOptimizer"),  # the same results as TensorFlow's, in less time
  "adamw": _Choice(0.001, "AdamWOptimizer", {"weight_decay": 0.01}, "weight_decay"),
  "lazy_adam": _Choice(0.001, "LazyAdamOptimizer"),  # Adam on the batch's rows only
  "adagrad": _Choice(0.05, "AdagradOptimizer"),
  "adadelta": _Choice(1.0, "AdadeltaOptimizer"),  # the paper's method has no learning rate
  "rmsprop": _Choice(0.001, "RMSPropOptimizer"),  # as in Hinton's lecture
  "ftrl": _Choice(0.05, "FtrlOptimizer"),
  "proximal_sgd": _Choice(0.01, "ProximalGradientDescentOptimizer"),
  "proximal_adagrad": _Choice(0.05, "ProximalAdagradOptimizer"),
}
OPTIMIZERS = tuple(OPTIMIZER_TABLE)


def parse_optimizer(text: str) -> _Choice:
  """Parses --optimizer: a row's name, and :X for the row's `number`; raises ValueError."""
  name, has_number, number = str(text).partition(":")
  if name not in OPTIMIZER_TABLE:
    raise ValueError("must be the name of an optimizer (%s)" % nearest_name(name, OPTIMIZERS))
  choice = OPTIMIZER_TABLE[name]
  if not has_number:
    return choice
  if not choice.number:
    raise ValueError("must have no number behind %s" % name)
  try:
    value = float(number)
  except ValueError:
    value = -1.0
  if not (0 <= value < math.inf):
    raise ValueError("must have a number from 0 on behind %s:, the %s" % (
      name, choice.number.replace("_", " ")))
  return choice._replace(arguments={**choice.arguments, choice.number: value})
