"""TensorFlow-1 parameter-server training on the TensorFlow of today.

It holds the names that a program needs, and the drop-ins under TensorFlow's names. A legacy trainer
changes its imports to use them. `import tf1ps` imports a name when you first use it.
"""

from __future__ import annotations

import importlib
import sys

from tf1ps.version import __version__

# The public names by the room that exports them.
_NAMES = {
  "cli": ["main", "run_local"],
  "cluster": ["Server"],
  "compat": ["Error"],
  "coordinator": ["ClusterCoordinator"],
  "launch": ["local_cluster"],
  "pipeline": ["Coordinator", "start_queue_runners"],
  "placement": ["GreedyLoadBalancingStrategy", "byte_size_load_fn", "replica_device_setter"],
  "program": ["ModelSpec", "evaluate", "export", "predict"],
  "replication": ["SyncReplicasOptimizer"],
  "session": ["MonitoredTrainingSession", "Supervisor"],
  "state": ["FIFOQueue", "PaddingFIFOQueue", "PriorityQueue", "RandomShuffleQueue"],
}
_WITHOUT_TENSORFLOW = ("cli", "compat")
_ROOM_OF = {name: room for room, names in _NAMES.items() for name in names}

__all__ = ["__version__"] + sorted(_ROOM_OF)


def __getattr__(name):
  if name not in _ROOM_OF:
    raise AttributeError("module 'tf1ps' has no attribute %r" % name)
  if _ROOM_OF[name] not in _WITHOUT_TENSORFLOW:
    importlib.import_module("tf1ps.compat").import_quietly()
  if name == "Server":
    importlib.import_module("tf1ps.state.ending")  # makes Server.join wait for the end of the job
  value = getattr(importlib.import_module("tf1ps." + _ROOM_OF[name]), name)
  setattr(sys.modules[__name__], name, value)
  return value


def __dir__():
  return sorted(set(globals()) | set(_ROOM_OF))
