"""The package tensorflow-estimator, in which tf1ps replaces some classes by its own."""

from __future__ import annotations

import functools
import types
from typing import Optional

from tf1ps import compat
from tf1ps.v1 import refused_tpu, train
from tf1ps.v1.estimator import updates


@functools.lru_cache(maxsize=None)
def load() -> Optional[types.ModuleType]:
  """Imports `tf.estimator` with tf1ps' classes; returns None if the package is not installed."""
  if compat.estimator_problem():
    return None
  return compat.estimator_with(
    server=train.Server, session=updates.MonitoredTrainingSession,
    make_device_setter=updates.make_device_setter, build_model=updates.build_model,
    check_strategies=_check_strategies, check_tpu=refused_tpu.check_estimator)


def explain(name: str):
  """Raises AttributeError for a name that the package does not have."""
  problem = compat.estimator_problem() or compat.LOST.get(
    "estimator." + name, "tensorflow-estimator has no such name")
  raise AttributeError("tf.estimator.%s is not there: %s." % (name, problem))


def _check_strategies(strategies: list, tf_config: dict) -> None:
  """Raises ValueError for a distribution strategy that an estimator cannot have here."""
  for name in [type(strategy).__name__ for strategy in strategies]:
    if name.startswith("ParameterServer") or tf_config.get("cluster"):
      raise ValueError(
        "RunConfig has a %s, and tf1ps trains estimators on a cluster without a strategy. Leave "
        "train_distribute and eval_distribute out, and name chief, worker and ps in TF_CONFIG: "
        "tf1ps then places the variables on the ps" % name)
