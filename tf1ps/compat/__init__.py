"""Differences between TensorFlow versions, and the parts that current TensorFlow lacks.

This room alone may use private symbols, each with its reason and a test that fails without it. Of
TensorFlow these are `tf.Session._do_call` (session_runs.py), `tf.Operation._update_input`
(graph_inputs.py), `tf.Operation._set_device` (first_task.py), `tf.Operation._set_attr`
(locked_counts.py), the operations that a `tf.train.SessionManager` holds (session_managers.py), the
arguments of a `tf.train.CheckpointSaverHook` (saver_hooks.py), and what the package
tensorflow-estimator misses (estimator.py). Of Keras it is `naming.reset_uids` (keras_names.py), of
tf_keras and slim what slim.py names.

It also holds what every room shares: the base class of all errors, exit codes, waits and retries.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "errors": ["Error", "error_line"],
  "estimator": [
    "Evaluations", "estimator_head", "estimator_problem", "estimator_with",
    "prepare_estimator", "train_and_evaluate"],
  "exit_codes": [
    "EXIT_FAILED", "EXIT_PORT_TAKEN", "EXIT_REFUSED", "EXIT_RELEASED", "signal_exit_code",
    "signal_name"],
  "first_task": ["place_variables"],
  "graph_inputs": ["replace_input"],
  "installed_files": ["is_installed_file"],
  "json_lines": [
    "JsonStream", "read_json_line", "rename_json_lines", "severity_of", "use_json_lines"],
  "keras_names": ["new_graph"],
  "learning_rates": ["learning_rate_in"],
  "leftovers": [
    "has_ended", "keep_directory", "make_directory", "temporary_directory", "temporary_path"],
  "link_proxy": [
    "LINK_CERTIFICATE", "LINK_NO_HOST", "LINK_NO_TLS", "LINK_PROXY", "LINK_REFUSED",
    "LINK_REFUSES_US", "LINK_UNREACHABLE", "link_status"],
  "locked_counts": ["lock_counts"],
  "quiet": [
    "VERBOSITIES", "held_back", "import_quietly", "quiet_environment", "quiet_python"],
  "recurrent_cells": ["GRUCell", "LSTMCell"],
  "retries": ["CONNECTION_ERRORS", "NEW_SESSION_ERRORS", "RETRIES", "format_retries"],
  "saver_hooks": ["last_step_of", "saver_arguments"],
  "session_managers": ["operations_of"],
  "session_runs": ["PreparedRuns", "can_prepare", "is_refused_run", "retry_refused_run"],
  "slim": ["mend_tf_slim", "replace_names"],
  "streams": ["LINE_TIME", "SCREEN_VARIABLE", "DroppingOutput", "guard_streams"],
  "timing": ["GRACE", "START_TIMEOUT", "TIMING", "Timing", "TimingError"],
  "worker_service": ["CallError", "cleanup_all", "get_status", "get_version"],
})
