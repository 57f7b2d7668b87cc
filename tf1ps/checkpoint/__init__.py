"""Finds, saves and restores checkpoints, and keeps each worker's position in its input.

All rooms share a saver (`make_saver`) and a restore function (`restore_checkpoint`), which first
checks names, types and shapes.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "checkpoints": [
    "STATE_FILE", "DamagedCheckpointError", "checkpoint_exists", "checkpoint_files",
    "global_step_of_checkpoint", "is_hidden", "latest_checkpoint", "listed_checkpoints",
    "name_latest", "named_in", "read_beside", "use_latest", "verify_checkpoint"],
  "directory": ["CheckpointError", "directory_problem"],
  "global_step": ["GlobalStepTracker", "find_global_step"],
  "input_positions": ["InputPositions"],
  "leftovers": ["remove_leftovers"],
  "restoring": [
    "MissingVariableError", "OtherVariableError", "make_saver", "make_saver_for",
    "moving_averages_here", "restore_checkpoint", "restore_latest"],
  "saving": ["CheckpointSaver"],
})
