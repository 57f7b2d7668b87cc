"""Decides what travels between workers and ps: packed, narrow, overlapped, or only rows in use."""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "accumulating": ["Accumulated", "AccumulatedRemainder"],
  "choices": ["WIRE_DTYPES"],
  "constants": ["keep_constants_local"],
  "embedding": ["embedding_lookup", "embedding_lookup_sparse"],
  "groups": ["DEFAULT_PACK_BYTES", "check_pack_bytes"],
  "lazy_adam": ["LazyAdamOptimizer"],
  "packed_optimizer": ["PackedOptimizer"],
  "packing": ["Bucket", "make_buckets", "pack_gradients"],
  "placed": ["LOCAL_CPU", "OpDevices", "needed_ops", "task_of_device"],
  "prefetch": ["Prefetch"],
  "pulls": ["fetch_variables"],
  "step_trace": ["TimeShares", "read_trace", "sent_messages", "time_shares"],
  "traffic": ["StepTraffic", "merge_trace", "report_traffic", "traffic_table"],
  "unrolling": ["Unrolled"],
  "wire": ["check_wire_dtype", "use_wire_dtype"],
  "wrapping_optimizer": ["WrappingOptimizer"],
})
