"""The heads of `tf.contrib.estimator`: a loss, its metrics and its predictions, for any logits.

These heads take an optimizer of `tf.train`. The heads of `tf.estimator`, such as `RegressionHead`,
take an optimizer of Keras.
"""

from __future__ import annotations

from typing import Callable, Iterable, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps import compat
from tf1ps.v1 import estimator as _estimator

_MEAN = tf.losses.Reduction.SUM_OVER_BATCH_SIZE


def binary_classification_head(
    weight_column=None, thresholds: Optional[Iterable[float]] = None,
    label_vocabulary: Optional[Sequence[str]] = None, loss_reduction: str = _MEAN,
    loss_fn: Optional[Callable] = None, name: Optional[str] = None):
  """Makes a head of two classes: sigmoid cross entropy of logits `[..., 1]`.

  Args:
    weight_column: the feature column, or its name, of each example's weight.
    thresholds: numbers in (0, 1); evaluations have accuracy, precision and recall for each.
    label_vocabulary: the labels, if they are texts; else they are numbers in [0, 1].
    loss_reduction: a value of `tf.losses.Reduction` except NONE.
    loss_fn: takes labels and logits, returns a loss `[..., 1]`, which replaces the cross entropy.
    name: the end of the names of summaries and metrics.
  """
  return _make("binary", weight_column=weight_column, thresholds=thresholds,
               label_vocabulary=label_vocabulary, loss_reduction=loss_reduction, loss_fn=loss_fn,
               name=name)


def multi_class_head(
    n_classes: int, weight_column=None, label_vocabulary: Optional[Sequence[str]] = None,
    loss_reduction: str = _MEAN, loss_fn: Optional[Callable] = None, name: Optional[str] = None):
  """Makes a head of more than two classes: softmax cross entropy of logits `[..., n_classes]`.

  Args:
    n_classes: the number of classes.
    weight_column: as in `binary_classification_head`, like all that follow.
    label_vocabulary: the labels, if they are texts; else they are integers in [0, n_classes).
    loss_reduction: a value of `tf.losses.Reduction` except NONE.
    loss_fn: takes labels and logits, returns a loss `[..., 1]`.
    name: stands at the end of the names of summaries and metrics.
  """
  return _make("multi_class", n_classes=n_classes, weight_column=weight_column,
               label_vocabulary=label_vocabulary, loss_reduction=loss_reduction, loss_fn=loss_fn,
               name=name)


def regression_head(
    weight_column=None, label_dimension: int = 1, loss_reduction: str = _MEAN,
    loss_fn: Optional[Callable] = None, inverse_link_fn: Optional[Callable] = None,
    name: Optional[str] = None):
  """Makes a head of numbers: the squared error of logits `[..., label_dimension]`.

  Args:
    weight_column: as in `binary_classification_head`.
    label_dimension: the numbers per label.
    loss_reduction: a value of `tf.losses.Reduction` except NONE.
    loss_fn: takes labels and logits, returns a loss of the shape of the logits.
    inverse_link_fn: makes the predictions from the logits.
    name: stands at the end of the names of summaries and metrics.
  """
  return _make("regression", weight_column=weight_column, label_dimension=label_dimension,
               loss_reduction=loss_reduction, loss_fn=loss_fn, inverse_link_fn=inverse_link_fn,
               name=name)


def poisson_regression_head(
    weight_column=None, label_dimension: int = 1, loss_reduction: str = _MEAN,
    compute_full_loss: bool = True, name: Optional[str] = None):
  """Makes a head of counts: `tf.nn.log_poisson_loss`; predictions are `exp(logits)`.

  Args:
    weight_column: as in `regression_head`, like all others.
    label_dimension: the numbers per label.
    loss_reduction: a value of `tf.losses.Reduction` except NONE.
    compute_full_loss: whether the loss includes the term that does not depend on the logits.
    name: stands at the end of the names of summaries and metrics.
  """
  def loss(labels, logits):
    return tf.nn.log_poisson_loss(
      targets=labels, log_input=logits, compute_full_loss=compute_full_loss)

  return regression_head(weight_column, label_dimension, loss_reduction, loss, tf.exp, name)


def logistic_regression_head(weight_column=None, loss_reduction: str = _MEAN,
                             name: Optional[str] = None):
  """Makes a head of probabilities: sigmoid cross entropy; predictions are `sigmoid(logits)`.

  Args:
    weight_column: as in `regression_head`, like all others.
    loss_reduction: a value of `tf.losses.Reduction` except NONE.
    name: stands at the end of the names of summaries and metrics.
  """
  def loss(labels, logits):
    in_range = [tf.debugging.assert_non_negative(labels, message="a label is below 0"),
                tf.debugging.assert_less_equal(labels, 1.0, message="a label is above 1")]
    with tf.control_dependencies(in_range):
      return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

  return regression_head(weight_column, 1, loss_reduction, loss, tf.sigmoid, name)


def _make(kind, **arguments):
  _estimator.Estimator  # noqa: B018  it says what to install
  return compat.estimator_head(kind, **arguments)
