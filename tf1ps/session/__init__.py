"""Opens training sessions on a cluster, and takes them from start to end.

A session here starts within a limit, recovers after a lost task, belongs to a run, and saves and
releases the ps at the end. `MonitoredTrainingSession` and `Supervisor` are the drop-ins.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "container_check": ["ContainerMismatchError"],
  "ending": [
    "JobFailedError", "TaskLostError", "report_error", "report_part", "report_signal",
    "wait_for_workers"],
  "initialise": ["SessionCreationError", "SessionTimeoutError"],
  "lifecycle": ["MonitoredSession", "SessionLifecycle"],
  "membership": ["ClusterMismatchError", "Membership"],
  "monitored_session": ["MonitoredTrainingSession", "open_session"],
  "plain_session": ["Session"],
  "presence": ["follow_servers"],
  "process_end": ["end_open_sessions"],
  "run_directory": ["DirectoryInUseError", "PartDoneError", "check_not_over"],
  "settings": ["Interval", "PS_RECOVERIES", "SessionSettings"],
  "signature": ["GraphMismatchError"],
  "summaries": ["flush_summaries", "write_summary"],
  "supervised_session": ["SupervisedSession"],
  "supervisor": ["Supervisor"],
  "takeover": ["LivingRunError"],
  "unplaced": ["place_as_tensorflow_1"],
})
