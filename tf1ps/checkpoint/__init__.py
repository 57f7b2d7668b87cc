"""Finds, saves and restores checkpoints, and the positions of the input in them."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "checkpoints": [
    "CheckpointError", "checkpoint_exists", "global_step_of_checkpoint", "latest_checkpoint",
    "listed_checkpoints"],
  "global_step": ["GlobalStepTracker"],
  "input_positions": ["InputPositions"],
  "restoring": ["make_saver", "make_saver_for", "restore_checkpoint"],
  "saving": ["CheckpointSaver"],
})
