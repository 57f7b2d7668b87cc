"""Reads one batch ahead: workers that train in step must know whether there is a next batch.

A separate run reads the batch into a queue on the worker, and the step takes it from there.
"""

from __future__ import annotations

from typing import Any, Optional

import tensorflow.compat.v1 as tf

from tf1ps.program import batch_size_of


class BatchAhead:
  """Batches between the input and the model.

  Attributes:
    read: reads a batch and returns the number of its examples; at the end of the data it raises
      OutOfRangeError.
  """

  def __init__(self):
    self.read: Optional[tf.Tensor] = None

  def pass_through(self, inputs: Any) -> Any:
    """Builds the queue for `inputs`, (features, labels), between the input and the model.

    Returns the same structure with the tensors of the oldest batch in the queue; a step that takes
    from an empty queue blocks.
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
