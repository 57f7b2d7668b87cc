"""A program's model as towers: one input per worker, one model per device.

1. `add_worker` calls input_fn for one worker's share and splits each batch over its clones.
2. `loss` calls model_fn for one part. `optimizers` takes the model's optimizer, if the model has an
   optimizer.

The builders of tf1ps/replication take `loss` as `tower_fn`, and `optimizers.of_tower`, which
represents an optimizer that is not known until its tower is built.
"""

from __future__ import annotations

from typing import Callable, List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import Shard, check_asked
from tf1ps.program import Program, batch_size_of, build_input, build_model, check_variables
from tf1ps.replication import ClonePart, split_unevenly
from tf1ps.training.optimizers import Optimizers
from tf1ps.training.options import Options


class ProgramTowers:
  """The towers of a program, in the default graph.

  Attributes:
    batch_sizes: the examples in a batch of each worker, scalar int tensors. A run that fetches such
      a tensor draws a batch, even if the size is static.
    optimizers: the optimizers of the towers.
    hooks: the program's hooks, from the model of the first tower.
  """

  def __init__(self, program: Program, options: Options):
    """Builds only the learning rate of the options."""
    self._program = program
    self._parts: List[ClonePart] = []
    self.batch_sizes: list = []
    self.optimizers = Optimizers(options)
    self.hooks: Sequence[tf.train.SessionRunHook] = ()

  def add_worker(self, shard: Shard, num_clones: int = 1,
                 transform: Callable = lambda inputs: inputs) -> None:
    """Builds a worker's input for its clones, one tower each.

    Args:
      shard: the worker's share.
      num_clones: the number of devices that divide its batch.
      transform: called with (features, labels); returns the batch that the clones divide.

    Raises:
      ShardError: the program trains on several workers and never asked its shard.
      ProgramError: input_fn returned no batch.
    """
    inputs = transform(build_input(self._program, "train", shard))
    check_asked(shard)
    size = batch_size_of(inputs[0])
    drawn = [leaf for leaf in tf.nest.flatten(inputs, expand_composites=True) if leaf is not None]
    with tf.control_dependencies(drawn):
      self.batch_sizes.append(tf.identity(size))
    self._parts += split_unevenly(inputs, size, num_clones)

  def loss(self, index: int) -> tf.Tensor:
    """Builds the model of tower `index`; returns its loss, weighted by its part of the batch.

    Tower indices follow the order of the workers, and within a worker the order of its clones.
    Raises ModelSpecError and others if
    the program returned no model, or a model that the options do not fit (`Optimizers.add`).
    """
    (features, labels), weight = self._parts[index]
    spec = build_model(self._program, features, labels, "train")
    if not self.optimizers.built:  # the first tower; the graph has no other model
      check_variables(spec)
      self.hooks = spec.hooks
    self.optimizers.add(spec)
    return spec.loss if weight is None else spec.loss * tf.cast(weight, spec.loss.dtype)
