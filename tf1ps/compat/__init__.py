"""What differs between TensorFlow versions, and what current TensorFlow took away.

This room alone may touch private symbols of TensorFlow. It also holds what every room shares: the
base class of all errors.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "error_text": ["error_line"],
  "errors": ["Error"],
  "exit_codes": [
    "EXIT_FAILED", "EXIT_PORT_TAKEN", "EXIT_RELEASED", "signal_exit_code", "signal_name"],
  "graph_inputs": ["replace_input"],
  "prepared_runs": ["PreparedRuns", "can_prepare"],
  "quiet": ["VERBOSITIES", "held_back", "quiet_environment", "quiet_python"],
  "recurrent_cells": ["GRUCell", "LSTMCell"],
  "refused_runs": ["is_refused_run", "retry_refused_run"],
  "timing": ["TIMING", "Timing", "TimingError"],
  "worker_service": ["CallError", "cleanup_all", "get_status"],
})
