"""Reads one batch ahead, because workers that step together must know which have a next batch.

A separate run reads the batch into a queue on the worker, and the step takes it from there.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

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
    self._left: Optional[tf.Tensor] = None
    self._taken: Sequence[tf.Tensor] = ()

  def pass_through(self, inputs: Any) -> Any:
    """Builds the queue for `inputs`, (features, labels), between the input and the model.

    Returns the same structure with the tensors of the oldest batch in the queue. A step that
    dequeues from an empty queue blocks.
    """
    features, _ = inputs
    leaves = tf.nest.flatten(inputs, expand_composites=True)
    tensors = [leaf for leaf in leaves if leaf is not None]
    queue = tf.FIFOQueue(2, [tensor.dtype for tensor in tensors], name="batch_ahead")
    with tf.control_dependencies([queue.enqueue(tensors)]):
      self.read = tf.identity(batch_size_of(features), name="batch_ahead_examples")
    self._left, taken = queue.size(), queue.dequeue()
    self._taken = taken if isinstance(taken, (list, tuple)) else [taken]
    for copy, tensor in zip(self._taken, tensors):
      copy.set_shape(tensor.shape)
    copies = iter(self._taken)
    return tf.nest.pack_sequence_as(
      inputs, [leaf if leaf is None else next(copies) for leaf in leaves], expand_composites=True)

  def clear(self, session: tf.Session) -> None:
    """Drops the batches that an earlier session has read and not trained on."""
    for _ in range(session.run(self._left)):
      session.run(self._taken)
