"""Reduces what travels between workers and ps, and measures it.

The package packs small variables and gradients into one message, narrows float32 values to a wire
type, prefetches, and sends embeddings as rows or sums of bags. A run can make several steps, or
compute one gradient from several batches.
`report_traffic` and `sent_messages` count the bytes and messages of a step.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "accumulating": ["Accumulated", "AccumulatedRemainder"],
  "adam": ["AdamOptimizer", "AdamWOptimizer"],
  "buckets": ["Bucket", "make_buckets", "pack_gradients"],
  "embedding": ["embedding_lookup", "embedding_lookup_sparse"],
  "fetch": ["fetch_variables"],
  "flat_buffers": ["check_pack_bytes"],
  "graph_packing": ["Packed", "pack_graph"],
  "lazy_adam": ["LazyAdamOptimizer"],
  "local_copies": ["keep_constants_local"],
  "packed_optimizer": ["PackedOptimizer", "WrappingOptimizer", "apply_and_count"],
  "prefetch": ["Prefetch"],
  "run_length": ["RunLength"],
  "step_time": ["TimeShares", "blocks", "phases", "time_shares", "waits"],
  "step_trace": ["Ran", "Trace", "Transfer", "on_one_clock", "read_trace", "sent_messages"],
  "traffic": ["StepTraffic", "merge_trace", "report_traffic", "traffic_table"],
  "unrolling": ["EndOfDataError", "Unrolled", "may_gain_in_long_runs"],
  "wire": ["check_wire_dtype", "use_wire_dtype"],
  "wire_options": [
    "DEFAULT_PACK_BYTES", "PACK_VARIABLE", "WIRE_DTYPES", "format_bytes", "pack_bytes_of_process"],
})
