"""Finds, saves and restores checkpoints, and keeps the position of each worker's input in them.

All uses of a checkpoint share one saver (`make_saver`) and one restore (`restore_checkpoint`).
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "checkpoints": [
    "CheckpointError", "checkpoint_exists", "global_step_of_checkpoint", "latest_checkpoint",
    "listed_checkpoints"],
  "directory": ["directory_problem"],
  "global_step": ["GlobalStepTracker"],
  "input_positions": ["InputPositions"],
  "restoring": ["make_saver", "make_saver_for", "restore_checkpoint"],
  "saving": ["CheckpointSaver"],
})
