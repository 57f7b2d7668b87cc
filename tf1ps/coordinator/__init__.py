"""One client that schedules steps on remote workers, with the names of TensorFlow 2's coordinator.

The ps and the workers are plain servers that wait in `tf1ps.Server.join`. A `ClusterCoordinator`
in the chief owns the program: a step runs on any free worker, and runs again on another worker if
its worker is lost.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "cluster_coordinator": ["ClusterCoordinator"],
  "functions": ["FunctionError", "PerWorkerDataset", "PerWorkerValues"],
  "steps": ["RemoteValue", "StepCancelledError", "StepError"],
})
