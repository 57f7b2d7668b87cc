"""Trains a program as one worker of a job.

It checks the options, builds the step for the chosen replication, runs the loop with its hooks,
reports, and leaves the run.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "build": ["build_step"],
  "dynamic_ranges": ["DynamicRanges"],
  "image_path": ["SummaryImageError", "check_summary_image"],
  "options": [
    "BETWEEN_GRAPH", "BY_NAME", "DEFAULT_MAX_RESTARTS", "GPU_NONE", "LOG_JSON", "OLD_FLAGS",
    "Option", "Options", "PROGRAMS",
    "RESTART_NEVER", "StalenessPolicy", "TABLE", "check_options", "first_batch_size", "of_program",
    "parse_bad_record_policy", "parse_gpu_memory", "parse_staleness_policy", "shard_of"],
  "outcome": ["NanLossError", "Outcome"],
  "stall_watch": ["StalledError"],
  "step_log": ["NotedRun", "read_step_log"],
  "traffic_report": ["TrafficReport"],
  "worker": ["train"],
})
