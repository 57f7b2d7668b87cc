"""Another input for an operation that is in the graph already.

The values that a model reads shall come by another way once the model is built, and whoever wrote
it made its operations long before. TensorFlow changes inputs itself when it builds loops, by
`Operation._update_input`; tf.contrib.graph_editor, which was the public way, is gone.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def replace_input(tensor: tf.Tensor, by: tf.Tensor, consumers) -> int:
  """Gives operations another tensor where they have this one.

  It must happen before a session runs any of them.

  Args:
    tensor: the input that they have.
    by: what they get in its place, of the same type.
    consumers: the operations.

  Returns:
    How many inputs were replaced.
  """
  count = 0
  for op in consumers:
    for index, present in enumerate(op.inputs):
      if present is tensor:
        op._update_input(index, by)
        count += 1
  return count
