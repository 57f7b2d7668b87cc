"""TensorFlow-1 parameter-server training on the TensorFlow of today.

The drop-ins live here under the names that TensorFlow has for them: a legacy trainer changes its
imports. Nothing heavy is imported until a name is used.
"""

from __future__ import annotations

import importlib

from tf1ps.version import __version__

# Name -> the module that defines it, and modules that must be there for it to work.
_NAMES = {
  "Server": ("tf1ps.cluster.server", "tf1ps.state.ending"),
  "replica_device_setter": ("tf1ps.placement.device_setter",),
  "GreedyLoadBalancingStrategy": ("tf1ps.placement.load_balancing",),
  "byte_size_load_fn": ("tf1ps.placement.load_balancing",),
  "Coordinator": ("tf1ps.pipeline.coordinator",),
  "start_queue_runners": ("tf1ps.pipeline.queue_runners",),
  "FIFOQueue": ("tf1ps.state.queues",),
  "PaddingFIFOQueue": ("tf1ps.state.queues",),
  "PriorityQueue": ("tf1ps.state.queues",),
  "RandomShuffleQueue": ("tf1ps.state.queues",),
  "SyncReplicasOptimizer": ("tf1ps.replication.sync_replicas_optimizer",),
  "MonitoredTrainingSession": ("tf1ps.training.monitored_session",),
}

__all__ = ["__version__"] + sorted(_NAMES)


def __getattr__(name):
  if name not in _NAMES:
    raise AttributeError("module 'tf1ps' has no attribute %r" % name)
  modules = [importlib.import_module(module) for module in _NAMES[name]]
  value = getattr(modules[0], name)
  globals()[name] = value
  return value


def __dir__():
  return sorted(set(globals()) | set(_NAMES))
