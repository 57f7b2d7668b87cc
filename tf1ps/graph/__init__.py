"""Reads and copies TensorFlow graphs: a walker, a copier, and the devices of operations.

Code that inspects a finished graph starts here: `needed_ops` walks up from operations,
`descendants` walks down, `depths` finds the operations that may not run because they are in a
branch or a loop, `Subgraph` copies a part of a graph within the same graph, and `OpDevices` says
where operations run.
"""

from __future__ import annotations

from tf1ps import _lazy

# The public names of this room by the module that defines them.
__all__, __getattr__, __dir__ = _lazy.exports(__name__, {
  "building": ["says_building"],
  "constants": ["definition_without", "large_constants"],
  "control_flow": ["Depth", "FUNCTION_CALLERS", "depths", "in_order", "is_control_flow", "is_enter",
                   "predecessors_in_order"],
  "copy": ["Subgraph", "SubgraphCopy", "is_handle", "is_handle_type", "make_gate", "ops_of"],
  "op_devices": ["LOCAL_CPU", "OpDevices", "VARIABLE_OPS", "cpu_of", "on_place",
                 "place_of_device", "place_of_op", "task_of_device", "task_of_op"],
  "sizes": ["TooLargeError", "check_constants", "check_tensors", "find_too_large"],
  "stand_ins": ["fed_stand_ins", "stand_in"],
  "templates": ["Template", "constant_attributes", "text_attribute"],
  "walk": ["consumers_of", "descendants", "needed_ops", "predecessors", "source_op", "uses"],
})
