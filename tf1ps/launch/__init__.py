"""Starts the tasks of a job on this machine, watches them, and ends them."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "fork_server": ["ForkServer", "ForkServerLost", "LocalTask", "PreloadError"],
  "hosts_file": ["HostsError", "read_hosts"],
  "job": ["JobOutcome", "Task", "cluster_flags", "describe_tasks"],
  "local": ["local_job", "run_tasks"],
  "in_process": ["LocalCluster", "TaskFailedError", "local_cluster"],
  "output": ["is_terminal"],
  "ports": ["find_free_addresses", "find_free_ports"],
  "scripts": ["run_together"],
  "ssh": ["run_on_hosts"],
  "task_main": ["TITLE_VARIABLE", "TLS_VARIABLE", "die_with_parent", "prepare_streams"],
})
