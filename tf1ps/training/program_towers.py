"""A program's model as towers: one input per worker, one model per device.

1. `add_worker` calls input_fn for one worker's share and splits each batch over its clones.
2. `loss` calls model_fn for one part. The model may bring an optimizer; else the options give it.

The builders of tf1ps/replication take `loss` as `tower_fn`, and `optimizer`, which stands for an
optimizer that is known once its tower is built.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.compat import learning_rate_in
from tf1ps.pipeline import Shard, check_asked
from tf1ps.program import (
  AveragedOptimizer,
  Program,
  add_l2_gradients,
  batch_size_of,
  build_input,
  build_model,
  build_moving_average,
  check_variables,
  learning_rate_of,
)
from tf1ps.replication import ClonePart, split_unevenly
from tf1ps.training import hints, own_train_op
from tf1ps.training import options as options_lib
from tf1ps.training.step import summarize

_RATE_TAG = "learning_rate"


class ProgramTowers:
  """The towers of a program, in the default graph.

  Attributes:
    batch_sizes: the examples in a batch of each worker, scalar int tensors. A run that fetches one
      draws a batch, even if the size is static.
    optimizers: the optimizer of each tower built so far.
    has_own_optimizer: whether the program has brought an optimizer.
    train_op: the program's own training op, or None; then no tower has an optimizer.
    hooks: the program's hooks, those of the first tower.
    hint: a hint at another optimizer, or "".
  """

  def __init__(self, program: Program, make_optimizer: Callable[[], tf.train.Optimizer],
               options: options_lib.Options):
    """Prepares; builds nothing. `make_optimizer` is for a program without an optimizer."""
    self._program, self._make_optimizer = program, make_optimizer
    self._options = options
    self._parts: List[ClonePart] = []
    self.batch_sizes: list = []
    self.optimizers: List[tf.train.Optimizer] = []
    self.has_own_optimizer = False
    self.train_op = None
    self.hooks: Sequence[tf.train.SessionRunHook] = ()
    self.hint = ""
    self._averages: Optional[tf.train.ExponentialMovingAverage] = None

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

    Towers count in the order of the workers and their clones. Raises ModelSpecError and others if
    the program returned no model, or a training op that the options cannot run.
    """
    (features, labels), weight = self._parts[index]
    spec = build_model(self._program, features, labels, "train")
    if not self.optimizers:  # the first tower; the graph has no other model
      check_variables(spec)
      self.hooks = spec.hooks
    if spec.train_op is not None:
      own_train_op.check(self._options)
      self.train_op = spec.train_op
    self.has_own_optimizer = spec.optimizer is not None
    self.optimizers.append(spec.optimizer or self._optimizer_of_options())
    return spec.loss if weight is None else spec.loss * tf.cast(weight, spec.loss.dtype)

  def _optimizer_of_options(self):
    return own_train_op.NoGradients() if self.train_op is not None else self._make_optimizer()

  def optimizer(self, index: int = 0) -> "_OptimizerToCome":
    """Returns the optimizer of a tower; others may take it before the tower is built."""
    return _OptimizerToCome(self, index)

  def complete_gradients(self, grads_and_vars: list) -> list:
    """Takes a tower's gradients, for the hint; returns them with those of the L2 penalty."""
    self.hint = self.hint or hints.of_adam(
      self.optimizers[0], grads_and_vars, self.has_own_optimizer)
    scale = self._options.l2_regularization
    return grads_and_vars if scale is None else add_l2_gradients(grads_and_vars, scale)

  def averaged(self, optimizer: tf.train.Optimizer) -> tf.train.Optimizer:
    """Returns the optimizer; one around it that moves averages, if the options ask for them.

    Call it when the model is built, and outside of branches.
    """
    decay = self._options.moving_average_decay
    if decay is None:
      return optimizer
    if self._averages is None:
      self._averages = build_moving_average(decay, tf.train.get_global_step())
    return AveragedOptimizer(optimizer, self._averages)


def check_learning_rate(towers: ProgramTowers, options: options_lib.Options) -> None:
  """Raises ValueError if the options change the learning rate of a program's own optimizer."""
  for name in ("scale_learning_rate", "learning_rate_decay"):
    if getattr(options, name) and towers.has_own_optimizer:
      raise ValueError("--%s has no effect: the program brings an optimizer of its own, which "
                       "knows its learning rate" % name)


def summarize_learning_rate(towers: ProgramTowers, optimizer: str, learning_rate) -> None:
  """Adds a summary of the learning rate: the options', or that of the program's own optimizer.

  There is none for a training op of the program, for an optimizer whose rate is not known, and
  beside a summary of the program with the same tag.

  Args:
    towers: the built towers.
    optimizer: the name of the options' optimizer.
    learning_rate: a number, a float scalar tensor, or None for the optimizer's default.
  """
  if towers.train_op is not None:
    return
  if not towers.has_own_optimizer:
    rate = learning_rate_of(optimizer, learning_rate)
  else:
    rate = None if _has_summary(_RATE_TAG) else learning_rate_in(towers.optimizers[0])
  if rate is not None:
    summarize(_RATE_TAG, rate)


def _has_summary(tag: str) -> bool:
  """Whether the graph has a scalar summary with a tag."""
  return any(
    op.type == "ScalarSummary" and tf.get_static_value(op.inputs[0]) == tag.encode("utf-8")
    for op in tf.get_default_graph().get_operations())


class _OptimizerToCome:
  """The methods of an optimizer that builders call."""

  def __init__(self, towers: ProgramTowers, index: int):
    self._towers, self._index = towers, index

  def compute_gradients(self, *args, **kwargs):
    found = self._towers.optimizers[self._index].compute_gradients(*args, **kwargs)
    return self._towers.complete_gradients(found)

  def apply_gradients(self, *args, **kwargs):
    optimizer = self._towers.averaged(self._towers.optimizers[self._index])
    return optimizer.apply_gradients(*args, **kwargs)
