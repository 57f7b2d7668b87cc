"""Replaces the input of an operation that is in the graph already.

Some features give a model's operations their values from another tensor after the user's code has
built them. TensorFlow itself replaces inputs when it builds loops, by the private method
`Operation._update_input`. The public way, tf.contrib.graph_editor, was removed.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def replace_input(tensor: tf.Tensor, by: tf.Tensor, consumers) -> int:
  """Replaces a tensor among the inputs of operations; returns the number of replaced inputs.

  Call it before a session runs any of them.

  Args:
    tensor: the present input.
    by: the new input, of the same type.
    consumers: the operations.
  """
  count = 0
  for op in consumers:
    for index, present in enumerate(op.inputs):
      if present is tensor:
        op._update_input(index, by)
        count += 1
  return count
