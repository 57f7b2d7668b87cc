"""Differences between TensorFlow versions, and the parts that current TensorFlow lacks.

This room alone may use private symbols, each with its reason and a test that fails without it. Of
TensorFlow these are `tf.Session._do_call` (session_runs.py), `tf.Operation._update_input`
(graph_inputs.py), `tf.Operation._set_device` (first_task.py), `tf.Operation._set_attr`
(locked_counts.py), `tf.Graph._unsafe_unfinalize` (final_graphs.py), the operations that a
`tf.train.SessionManager` holds (session_managers.py), the arguments of a
`tf.train.CheckpointSaverHook` and the collection in which hooks look for the global step
(saver_hooks.py), `tf.Operation._get_control_flow_context` (regularizers.py), the modules
that AutoGraph makes (converted_functions.py), and what the package tensorflow-estimator misses
(estimator.py). The files of TensorFlow that legacy programs import are in internals.py, and those
of its layers in layer_files.py. Of Keras it is `naming.reset_uids` (keras_names.py), of tf_keras
and slim what slim.py names.

It also holds what every room shares: the base class of all errors, exit codes, waits and retries.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "converted_functions": ["converted_files", "remove_converted_files"],
  "drop_ins": ["DropIn"],
  "early_end": ["ENDING_SIGNALS", "EarlyEnd", "remove_early_end"],
  "error_texts": ["Error", "error_causes", "error_line", "failed_assertions", "failed_nodes"],
  "estimator": [
    "Evaluations", "estimator_head", "estimator_problem", "estimator_with",
    "prepare_estimator", "train_and_evaluate"],
  "exit_codes": [
    "ENDED_BY_SIGNAL", "EXIT_FAILED", "EXIT_PORT_TAKEN", "EXIT_REFUSED", "EXIT_RELEASED",
    "signal_exit_code", "signal_name"],
  "final_graphs": ["changeable"],
  "first_task": ["place_variables"],
  "freed_memory": ["keep_freed_memory"],
  "graph_inputs": ["replace_input"],
  "installed_files": ["is_installed_file"],
  "internals": ["INTERNAL_FILES", "MOVED_FILES", "internal_file"],
  "json_lines": [
    "WARNING", "JsonStream", "read_json_line", "rename_json_lines", "severity_of",
    "use_json_lines"],
  "keras_names": ["new_graph"],
  "layer_files": ["LAYER_FILE_NAMES", "layer_file_name"],
  "learning_rates": ["learning_rate_in"],
  "link_proxy": [
    "LINK_CERTIFICATE", "LINK_CLOSED", "LINK_NO_HOST", "LINK_NO_SERVER", "LINK_NO_TLS",
    "LINK_PROXY", "LINK_REFUSED", "LINK_REFUSES_US", "LINK_UNREACHABLE", "link_status"],
  "locked_counts": ["lock_counts"],
  "near_paths": ["near_path"],
  "old_names": [
    "DROP_INS", "GONE_FILES", "LOST", "OTHER_ARGUMENTS", "PACKAGES", "PUT_BACK", "PYTHON_FILES",
    "REFUSED", "REFUSED_TPU", "RENAMED", "Package"],
  "old_numpy": ["REMOVED_FROM_NUMPY"],
  "process_identity": ["has_ended", "own_identity"],
  "quiet": [
    "VERBOSITIES", "held_back", "import_quietly", "quiet_environment", "quiet_import",
    "quiet_python"],
  "recurrent_cells": ["GRUCell", "LSTMCell"],
  "regularizers": ["keep_tensors"],
  "retries": [
    "CONNECTION_ERRORS", "LOST_STATE_ERRORS", "NEW_SESSION_ERRORS", "RETRIES", "format_retries"],
  "saver_hooks": [
    "add_iterations", "give_step_to_hooks", "last_step_of", "saver_arguments", "stop_arguments"],
  "session_managers": ["operations_of"],
  "session_runs": ["PreparedRuns", "can_prepare", "is_refused_run", "retry_refused_run"],
  "slim": ["fix_tf_slim", "replace_names"],
  "streams": ["LINE_TIME", "SCREEN_VARIABLE", "DroppingOutput", "guard_streams"],
  "temporary_files": [
    "find_directories", "keep_directory", "make_directory", "temporary_directory",
    "temporary_path"],
  "timing": ["GRACE", "START_TIMEOUT", "TIMING", "Timing", "TimingError", "poll_pause"],
  "worker_service": ["CallError", "cleanup_all", "get_status", "get_version"],
})
