"""Chooses the device of each operation.

`replica_device_setter` is a drop-in for TensorFlow's function. Load balancing strategies choose the
ps of a variable, partitioners divide a variable over several ps, and the load table shows the
result.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "device_setter": ["DEFAULT_PS_OPS", "STRATEGIES", "SCOPE_ANCHOR", "replica_device_setter"],
  "load_balancing": [
    "GreedyLoadBalancingStrategy", "RandomStrategy", "RoundRobinStrategy", "byte_size_load_fn"],
  "load_table": ["count_lookups", "format_load_table", "make_load_table"],
  "local_variables": ["has_setter", "worker_device_of"],
  "partitioning": [
    "TablePart", "bytes_partitioner", "fixed_size_partitioner", "min_max_variable_partitioner",
    "partition_large", "parts_of_table", "variable_axis_size_partitioner"],
})
