"""`tf.contrib.framework`: most of it is in TensorFlow today, arg_scope and the like in tf_slim."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__,
    heirs={
      "tf": "TensorSpec argsort convert_to_tensor_or_sparse_tensor is_tensor nest py_func sort",
      "tf.train": "assert_global_step create_global_step get_global_step get_or_create_global_step "
                  "init_from_checkpoint list_variables load_checkpoint load_variable",
      "tf.debugging": "assert_scalar assert_same_float_dtype",
    },
    # The first one's names count: the second one's `arg_scope` is the module.
    libraries=["tf_slim.ops.arg_scope", "tf_slim.ops.variables", "tf_slim.ops.framework_ops"],
    path="python.ops")
