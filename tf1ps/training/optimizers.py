"""The optimizers of a program's towers: the program's own, or those that the options choose.

1. `Optimizers` takes the optimizer or the training op from the model of each tower, or makes an
   optimizer by the options. `NEEDS` lists the options that it must refuse if the program has its
   own optimizer or training op.
2. `averaged` wraps the optimizer that makes the update, to move the averages too.
"""

from __future__ import annotations

import math
from typing import List, Optional, Union

import tensorflow.compat.v1 as tf

from tf1ps import transfer
from tf1ps.compat import learning_rate_in
from tf1ps.program import ModelSpec, ModelSpecError, build_schedule
from tf1ps.replication import damped_learning_rate
from tf1ps.training import hints, moving_averages, optimizer_table
from tf1ps.training import options as options_lib
from tf1ps.training.step import summarize

# What an option needs of the optimizer. A program's own optimizer does not show its
# learning rate. A program's own training op does not show the gradients either.
NOTHING, GRADIENTS, LEARNING_RATE = "nothing", "gradients", "learning rate"


def _need_of_staleness(options):
  if options.staleness.damp:
    return LEARNING_RATE
  return GRADIENTS if options.staleness.drop is not None else NOTHING


# {option: its need, or a function of the options that returns the need}, for options that do not
# have their default. The error names the first option whose need the program does not meet.
# `optimizer` and the number of `learning_rate` apply to programs without an optimizer, as their
# help says; other programs ignore them.
NEEDS = {
  "replication": GRADIENTS,
  "sync_replicas": GRADIENTS,
  "on_uneven": GRADIENTS,
  "num_clones": GRADIENTS,
  "gradient_accumulation_steps": GRADIENTS,
  "clip_norm": GRADIENTS,
  "moving_average_decay": GRADIENTS,
  "overlap": lambda options: GRADIENTS if options.prefetch else NOTHING,
  "wire_dtype": GRADIENTS,
  "staleness_policy": _need_of_staleness,
  "optimizer": NOTHING,
  "learning_rate": lambda options: NOTHING if options.schedule is None else LEARNING_RATE,
}
_RATE_TAG = "learning_rate"


def make_optimizer(name: str, learning_rate: Union[float, tf.Tensor]) -> tf.train.Optimizer:
  """Makes an optimizer of `optimizer_table.OPTIMIZER_TABLE`.

  Args:
    name: its name there, with a number if that row has one, such as "adamw:0.05".
    learning_rate: a positive number, or a scalar float tensor such as a learning rate schedule.

  Raises:
    ValueError: there is no such optimizer, or the learning rate is not positive.
  """
  choice = optimizer_table.parse_optimizer(name)
  if not isinstance(learning_rate, tf.Tensor):
    learning_rate = float(learning_rate)
    if not (math.isfinite(learning_rate) and learning_rate > 0):
      raise ValueError(f"learning_rate must be above 0 and finite, got {learning_rate}")
  made = getattr(transfer, choice.class_name, None) or getattr(tf.train, choice.class_name)
  return made(learning_rate, **choice.arguments)


def build_learning_rate(options: options_lib.Options) -> Union[float, tf.Tensor]:
  """Returns the learning rate of the options, which follows the schedule if they give one."""
  rate = options.rate
  if rate is None:
    rate = optimizer_table.parse_optimizer(options.optimizer).learning_rate
  return build_schedule(options.schedule, rate, tf.train.get_global_step())


class Optimizers:
  """The optimizers of a program's towers, in the default graph.

  Attributes:
    built: the optimizer of each tower built so far.
    train_op: the program's own training op, or None; then no tower has an optimizer.
    hint: a hint at another optimizer, or "".
  """

  def __init__(self, options: options_lib.Options):
    """Builds the learning rate of the options, for a program without an optimizer."""
    self._options = options
    self._learning_rate = build_learning_rate(options)
    self._is_own = False
    self._averages: Optional[tf.train.ExponentialMovingAverage] = None
    self.built: List[tf.train.Optimizer] = []
    self.train_op = None
    self.hint = ""

  def add(self, spec: ModelSpec) -> None:
    """Takes the next tower's own optimizer or training op, or makes an optimizer by the options.

    Raises:
      ModelSpecError: the options need gradients, and the program brings a training op.
      ValueError: the options change the learning rate, and the program brings an optimizer.
    """
    if spec.train_op is not None:
      _check_own_train_op(self._options)
      self.train_op = spec.train_op
      self.built.append(_NoGradients())
    elif spec.optimizer is not None:
      _check_own_optimizer(self._options)
      self._is_own = True
      self.built.append(spec.optimizer)
    else:
      self.built.append(self._make(self._learning_rate))

  def of_tower(self, index: int = 0) -> "_OptimizerToCome":
    """Returns the optimizer of a tower; builders may take it before the tower is built."""
    return _OptimizerToCome(self, index)

  def note_gradients(self, grads_and_vars: list) -> None:
    """Takes a tower's gradients, for the hint."""
    self.hint = self.hint or hints.of_adam(self.built[0], grads_and_vars, self._is_own)

  def averaged(self, optimizer: tf.train.Optimizer) -> tf.train.Optimizer:
    """Returns the optimizer, wrapped to move averages if the options ask for them.

    Call it when the model is built, and outside of branches.
    """
    decay = self._options.moving_average_decay
    if decay is None:
      return optimizer
    if self._averages is None:
      self._averages = moving_averages.build_moving_average(decay, tf.train.get_global_step())
    return moving_averages.AveragedOptimizer(optimizer, self._averages)

  def damped(self, age: tf.Tensor) -> tf.train.Optimizer:
    """Returns the optimizer of the options for gradients of this age, a scalar int tensor."""
    return self.averaged(self._make(damped_learning_rate(self._learning_rate, age)))

  def _make(self, learning_rate) -> tf.train.Optimizer:
    return make_optimizer(self._options.optimizer, learning_rate)

  def summarize_learning_rate(self) -> None:
    """Adds a summary of the learning rate: the options', or that of the program's own optimizer.

    It adds no summary if the program has its own training op, if the rate of the program's
    optimizer is not known, or if the program has a summary with the same tag.
    """
    rate = None if self.train_op is not None else self._learning_rate
    if self._is_own:
      rate = None if _has_summary(_RATE_TAG) else learning_rate_in(self.built[0])
    if rate is not None:
      summarize(_RATE_TAG, rate)


def _check_own_optimizer(options) -> None:
  asked = _options_with(options, LEARNING_RATE)
  if asked:
    flag = "--staleness_policy=damp"
    if asked[0] != "staleness_policy":
      flag = options_lib.as_flag(asked[0], getattr(options, asked[0]))
    raise ValueError("%s has no effect: the program brings an optimizer of its own, which knows "
                     "its learning rate" % flag)


def _check_own_train_op(options) -> None:
  asked = _options_with(options, GRADIENTS, LEARNING_RATE)
  if asked:
    flag = options_lib.as_flag(asked[0], getattr(options, asked[0]))
    raise ModelSpecError(
      f"model_fn returned a train_op, and {flag} makes the update itself, from the gradients of "
      f"the loss. Return ModelSpec(optimizer=...) in its place, or leave out {flag}")


def _options_with(options, *needs) -> List[str]:
  """Returns the options with one of these needs."""
  return [name for name, need in NEEDS.items()
          if getattr(options, name) != options_lib.BY_NAME[name].default
          and (need(options) if callable(need) else need) in needs]


def _has_summary(tag: str) -> bool:
  return any(
    op.type == "ScalarSummary" and tf.get_static_value(op.inputs[0]) == tag.encode("utf-8")
    for op in tf.get_default_graph().get_operations())


class _OptimizerToCome:
  """Represents the optimizer of a tower that is not built yet; builders call it later."""

  def __init__(self, optimizers: Optimizers, index: int):
    self._optimizers, self._index = optimizers, index

  def compute_gradients(self, *args, **kwargs):
    pairs = self._optimizers.built[self._index].compute_gradients(*args, **kwargs)
    self._optimizers.note_gradients(pairs)
    return pairs

  def apply_gradients(self, *args, **kwargs):
    optimizer = self._optimizers.averaged(self._optimizers.built[self._index])
    return optimizer.apply_gradients(*args, **kwargs)


class _NoGradients:
  """Replaces the optimizer of a program with its own training op; computes no gradient."""

  def compute_gradients(self, *unused_args, **unused_kwargs) -> list:
    return []
