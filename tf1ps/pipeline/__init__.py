"""Brings input to a worker: its share of the data, in batches by tf.data or queues.

A program asks its `Shard` for files or records. It makes batches with tf.data, or with the datasets
or producers of this package.
Records that cannot be decoded are reported with file and line, or skipped. Sessions use this
package to start iterators and queue runners and to explain their errors.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "bad_records": ["BadRecords", "TooManyBadRecordsError"],
  "batch_decoding": ["explain_input_error"],
  "coordinator": ["Coordinator"],
  "datasets": [
    "fixed_length_record_dataset", "text_line_dataset", "tf_record_dataset", "whole_file_dataset"],
  "graph_input": ["add_record_source", "use_bad_records"],
  "input_end": ["Ending", "ending_of"],
  "input_options": [
    "DEFAULT_MAX_BAD_RATIO", "FAIL_ON_BAD_RECORD", "ON_BAD_RECORD", "SHARDS", "SHARD_DYNAMIC",
    "SKIP_BAD_RECORD", "parse_bad_record_policy"],
  "iterators": [
    "IteratorPositions", "PositionError", "generated", "has_python_calls",
    "iterator_initializers", "next_batch", "without_autotuning"],
  "lease_table": ["DifferentDataError", "LeaseState", "LeaseTable", "StaleSessionError"],
  "leases": ["BATCHES_PER_BLOCK", "EndlessDatasetError", "RangeReport", "restart_problem"],
  "producers": [
    "batch", "batch_join", "input_producer", "maybe_batch", "maybe_batch_join",
    "maybe_shuffle_batch", "maybe_shuffle_batch_join", "range_input_producer", "shuffle_batch",
    "shuffle_batch_join", "slice_input_producer", "string_input_producer"],
  "queue_runners": ["adopt_queue_runners", "start_queue_runners"],
  "shard": ["Shard", "ShardError", "check_asked"],
  "unfilled_queues": ["warn_unfilled_queues"],
})
