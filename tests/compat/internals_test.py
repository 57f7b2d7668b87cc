"""Each file of TensorFlow's that internals.py names is there, with the names of TensorFlow 1.15."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import internals

# {file: names that programs take of it}
NAMES = {
  "distribute.distribution_strategy_context": "get_replica_context get_strategy",
  "framework.graph_util": "convert_variables_to_constants",
  "framework.ops": "IndexedSlices RegisterGradient Tensor convert_to_tensor get_default_graph",
  "ops.array_ops": "concat shape stack unstack",
  "ops.control_flow_ops": "Assert case cond group while_loop with_dependencies",
  "ops.data_flow_ops": "FIFOQueue StagingArea",
  "ops.math_ops": "matmul reduce_sum",
  "ops.nccl_ops": "all_sum broadcast reduce_sum",
  "ops.nn": "bidirectional_dynamic_rnn dynamic_rnn relu",
  "ops.random_ops": "random_crop random_normal",
  "ops.summary_ops_v2": "always_record_summaries create_file_writer scalar",
  "ops.variable_scope": "get_variable variable variable_scope",
  "ops.variables": "Variable VariableV1 global_variables_initializer is_variable_initialized",
  "pywrap_tensorflow": "NewCheckpointReader",
  "training.checkpoint_management": "get_checkpoint_state latest_checkpoint",
  "training.distribute": "ReplicaContext",
  "training.distribution_strategy_context": "get_replica_context",
  "training.gen_training_ops": "apply_adam",
  "training.training_ops": "apply_adam resource_apply_momentum",
  "util.nest": "flatten is_sequence map_structure",
}


def test_every_file_is_here():
  assert sorted(NAMES) == sorted(internals._FILES)


@pytest.mark.parametrize("file", sorted(NAMES))
def test_names_of_a_file(file):
  module = internals.internal_file(internals.INTERNAL_FILES["tensorflow.python." + file])
  for name in NAMES[file].split():
    assert callable(getattr(module, name)), name
  assert not hasattr(module, "absent") and not hasattr(module, "_absent")


def test_names_that_were_moved_are_the_public_ones():
  ops = internals.internal_file("framework_ops")
  assert ops.Tensor is tf.Tensor and ops.get_default_graph() is tf.get_default_graph()
  assert internals.internal_file("util_nest").is_sequence([1])
  with pytest.raises(AttributeError):
    internals.internal_file("absent")
