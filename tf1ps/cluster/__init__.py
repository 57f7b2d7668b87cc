"""Describes a cluster, starts its servers, and opens sessions whose waits have limits.

A `Cluster` is the checked description from flags, `TF_CONFIG`, a scheduler or a ClusterSpec.
`Server` starts a task of the cluster. A caller can always leave a `BoundedSession`, even while a
task is gone.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "bounded": ["LimitExceeded", "awaited_at_exit", "call_within"],
  "connections": ["count_connections"],
  "description": ["EVALUATOR", "Cluster", "ClusterError", "Task", "nearest_name",
                  "parse_address"],
  "gpu_errors": ["explain_gpu_error"],
  "gpus": ["NO_GPU", "Division", "divide_gpus", "take_share", "visible_gpus"],
  "held_task": ["TaskHeldError", "this_process"],
  "lifecycle_hook": ["LifecycleHook", "RecoverableSession"],
  "network": [
    "UnknownHostError", "bypass_proxy", "exposure_warning", "names_to_dial", "outside_address",
    "wait_for_names"],
  "parsing": ["from_cluster_spec", "resolve_cluster", "split_hosts"],
  "path_check": ["PathError", "check_paths"],
  "probe": [
    "ANOTHER_TASK", "ProbeResult", "TaskUnavailableError", "TaskWatch", "probe_task", "probe_tasks",
    "task_name_of_device", "wait_for_tasks"],
  "resolvers": [
    "AUTO_RESOLVER", "DEFAULT_PORT", "FoundCluster", "JobCounts", "RESOLVERS", "make_tf_config",
    "resolve_environment", "with_chief"],
  "server": [
    "JobLostError", "PortTakenError", "ReleasedError", "Server", "ServerClusterError",
    "ServerRecord", "as_task", "job_container", "latest_record", "on_server", "record_of",
    "record_of_task", "register_end_waiter"],
  "session": ["BoundedSession"],
  "session_config": [
    "filters_show_task", "grpc_environment", "make_device_filters", "make_session_config",
    "make_small_config", "without_placement_log"],
  "signals": ["ExitWatch", "SignalQueue", "SignalWatch", "leave_now", "raise_exit"],
  "versions": ["VersionError", "check_versions"],
})
