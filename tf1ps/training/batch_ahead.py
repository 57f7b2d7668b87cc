"""A batch ahead: who trains in step with others must know before a step whether it has the next.

Reading is a run of its own, into a queue on the worker; the step takes its batch from there.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow.compat.v1 as tf

from tf1ps.program import batch_size_of


class BatchAhead:
  """Batches between the input and the model.

  Attributes:
    read: reads a batch; its value is the number of examples in it, and it raises OutOfRangeError
      at the end of the data.
  """

  def __init__(self):
    self.read: Optional[tf.Tensor] = None

  def pass_through(self, inputs: Any) -> Any:
    """Builds the queue.

    Args:
      inputs: (features, labels), as input_fn returned them.

    Returns:
      The same structure: the tensors of the batch that was read first and not yet taken. Taking
      one where none was read blocks.
    """
    features, _ = inputs
    leaves = tf.nest.flatten(inputs, expand_composites=True)
    tensors = [leaf for leaf in leaves if leaf is not None]
    queue = tf.FIFOQueue(2, [tensor.dtype for tensor in tensors], name="batch_ahead")
    with tf.control_dependencies([queue.enqueue(tensors)]):
      self.read = tf.identity(batch_size_of(features), name="batch_ahead_examples")
    taken = queue.dequeue()
    taken = iter(taken if isinstance(taken, (list, tuple)) else [taken])
    found = [None if leaf is None else _like(next(taken), leaf) for leaf in leaves]
    return tf.nest.pack_sequence_as(inputs, found, expand_composites=True)


def _like(tensor, leaf):
  tensor.set_shape(leaf.shape)
  return tensor
