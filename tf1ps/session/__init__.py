"""Opens training sessions on a cluster: creation, recovery, membership of a run, and the end."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "container_check": ["ContainerMismatchError"],
  "ending": ["JobFailedError"],
  "initialise": ["SessionCreationError"],
  "lifecycle": ["MonitoredSession", "SessionLifecycle"],
  "membership": ["ClusterMismatchError", "Membership"],
  "monitored_session": ["Interval", "MonitoredTrainingSession", "open_session"],
  "plain_session": ["Session"],
  "presence": ["follow_servers"],
  "process_end": ["end_open_sessions"],
  "run_directory": ["DirectoryInUseError"],
  "session_creator": ["TaskLostError"],
  "signature": ["GraphMismatchError"],
  "supervised_session": ["SupervisedSession"],
  "supervisor": ["Supervisor"],
  "unplaced": ["place_as_tensorflow_1"],
})
