"""Reduces the gradients of several towers: to the mean or the sum, dense or sparse.

These rules hold for both kinds of gradients, with n towers:

1. The mean is the sum divided by n. A tower that does not use a variable (its gradient is None)
   counts as a tower with the gradient 0; a variable that no tower uses keeps None.
2. A sparse gradient (`tf.IndexedSlices`, of an embedding) stays sparse: indices and rows of all
   towers are concatenated, and each row is divided by n. So the result equals the mean of the dense
   gradients. (TensorFlow's sparse accumulator divides each row by the number of towers that
   have it.)
3. If some towers give a dense gradient of a variable and others a sparse gradient, all are
   converted to dense gradients.
"""

from __future__ import annotations

import contextlib
from typing import List, Optional, Sequence, Tuple, Union

import tensorflow.compat.v1 as tf

from tf1ps.state import sum_dtype

Gradient = Union[tf.Tensor, tf.IndexedSlices]
GradsAndVars = List[Tuple[Optional[Gradient], tf.Variable]]

REDUCTIONS = ("mean", "sum")


def reduce_gradients(towers: Sequence[GradsAndVars], reduction: str = "mean",
                     beside_variables: bool = False) -> GradsAndVars:
  """Reduces the gradients of several towers to one gradient for each variable.

  Args:
    towers: the result of `compute_gradients` for each tower: the same variables in the same order.
    reduction: "mean" or "sum".
    beside_variables: True: reduces on each variable's device, to which the towers' gradients
      travel. False: in the caller's scope of `tf.device`.

  Returns:
    A list of (gradient, variable), as `apply_gradients` takes it.

  Raises:
    ValueError: another reduction, no tower, or towers with different variables.
  """
  if reduction not in REDUCTIONS:
    raise ValueError(f"reduction must be {' or '.join(REDUCTIONS)}, got {reduction!r}")
  if not towers:
    raise ValueError("there must be at least one tower's gradients, got none")
  names = [[variable.name for _, variable in tower] for tower in towers]
  for index, own in enumerate(names):
    if own != names[0]:
      raise ValueError(f"tower {index} has gradients for the variables {own} and tower 0 for "
                       f"{names[0]}: they must be the same, in the same order")
  reduced = []
  for parts in zip(*towers):
    variable = parts[0][1]
    place = tf.device(variable.device) if beside_variables else contextlib.nullcontext()
    with place, tf.name_scope("reduce"):
      reduced.append((_reduce([gradient for gradient, _ in parts], reduction), variable))
  return reduced


def clip_gradients(grads_and_vars: GradsAndVars, clip_norm: float) -> GradsAndVars:
  """Clips gradients by their global norm, as `tf.clip_by_global_norm` does.

  The norm is the norm of the gradient as it is applied: rows of a sparse gradient with the same
  index are added first. `tf.clip_by_global_norm` itself takes the norm of the separate rows.

  Args:
    grads_and_vars: list of (gradient or None, variable).
    clip_norm: a positive number; if the global norm is above it, all gradients are scaled down so
      that the norm equals `clip_norm`.

  Returns:
    A list of (gradient or None, variable).

  Raises:
    ValueError: `clip_norm` is not above 0.
  """
  if not isinstance(clip_norm, tf.Tensor) and not clip_norm > 0:
    raise ValueError(f"clip_norm must be above 0, got {clip_norm!r}")
  grads_and_vars = list(grads_and_vars)  # it may be a zip
  gradients = [_without_repeats(gradient) for gradient, _ in grads_and_vars]
  clipped, _ = tf.clip_by_global_norm(gradients, clip_norm)
  return [(gradient, variable) for gradient, (_, variable) in zip(clipped, grads_and_vars)]


def mean_loss(losses: Sequence[tf.Tensor]) -> tf.Tensor:
  """Returns the mean of the towers' losses, []."""
  return tf.add_n(list(losses)) / len(losses) if len(losses) > 1 else tf.identity(losses[0])


def _reduce(gradients, reduction):
  """Returns the mean or sum of a variable's gradients; None where all are None."""
  count = len(gradients)
  gradients = [gradient for gradient in gradients if gradient is not None]
  if not gradients:
    return None
  if count == 1:
    return gradients[0]
  divisor = count if reduction == "mean" else 1
  if all(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
    return tf.IndexedSlices(
      tf.concat([gradient.values for gradient in gradients], 0) / divisor,
      tf.concat([tf.cast(gradient.indices, tf.int64) for gradient in gradients], 0),
      gradients[0].dense_shape)
  gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]
  dtype = gradients[0].dtype
  total = tf.add_n([tf.cast(gradient, sum_dtype(dtype)) for gradient in gradients])
  return tf.cast(total / divisor, dtype)


def _without_repeats(gradient):
  """Returns the gradient; if it is sparse, with a single row per index, of unknown number."""
  if not isinstance(gradient, tf.IndexedSlices):
    return gradient
  with tf.get_default_graph().colocate_with(gradient.values.op):
    indices, positions = tf.unique(gradient.indices)
    rows = tf.unsorted_segment_sum(gradient.values, positions, tf.shape(indices)[0])
  return tf.IndexedSlices(rows, indices, gradient.dense_shape)
