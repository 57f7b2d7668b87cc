"""Trains a program as one worker of a job.

It checks the options, builds the step for the chosen replication, runs the loop with its hooks,
reports, and leaves the run.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "auto_steps": ["AutoSteps"],
  "build": ["build_step"],
  "counts": ["Counts"],
  "dry_run": ["DryRun", "make_dry_run"],
  "dynamic_ranges": ["DynamicRanges"],
  "execution": ["Execution", "Fetches"],
  "optimizer_table": ["parse_optimizer"],
  "optimizers": ["make_optimizer"],
  "options": [
    "ALL_REDUCE", "AUTO", "BETWEEN_GRAPH", "BY_NAME", "GPU_ALL", "GPU_GROW",
    "GPU_NONE", "IN_GRAPH", "LOG_JSON",
    "OLD_FLAGS", "Option", "Options", "PROGRAMS", "StalenessPolicy", "TABLE", "check_options",
    "first_batch_size", "of_program", "parse_bad_record_policy", "parse_gpu_memory",
    "parse_restart", "parse_staleness_policy", "shard_of"],
  "outcome": ["NanLossError", "Outcome"],
  "stall_watch": ["StalledError"],
  "step": ["Step"],
  "stops": ["FASTER", "StopAtStep"],
  "traffic_report": ["TrafficReport"],
  "worker": ["train"],
})
