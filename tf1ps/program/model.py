"""What a program's `model_fn` returns, and the check of it.

`model_fn(features, labels, mode)` builds the model in the default graph and returns a `ModelSpec`.
What each mode needs:

  "train": loss; the optimizer is the flags' choice unless the spec brings its own.
  "eval": metrics, or a loss, or both. The mean of the loss over the examples is the metric "loss".
  "predict": predictions.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple, Union

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error

LOSS_METRIC = "loss"  # the name of the metric that is the mean loss
PREDICTION = "prediction"  # the name of predictions that are a single tensor
_MODES = ("train", "eval", "predict")


class ModelSpec(NamedTuple):
  """A model in one mode."""

  # Scalar float tensor: the mean loss of the examples of the batch.
  loss: Optional[tf.Tensor] = None
  # Name to tensor of shape [batch, ...], or one such tensor.
  predictions: Union[None, tf.Tensor, Dict[str, tf.Tensor]] = None
  # Name to (value, update_op), as tf.metrics' functions return them; the value is a scalar.
  metrics: Optional[Dict[str, Tuple[tf.Tensor, tf.Tensor]]] = None
  # A tf.train.Optimizer, where the flags' choice will not do.
  optimizer: Optional[tf.train.Optimizer] = None


class ModelSpecError(Error, ValueError):
  """model_fn returned something that the mode cannot use."""


def check_model_spec(spec: ModelSpec, mode: str) -> ModelSpec:
  """Checks what model_fn returned.

  Args:
    spec: what it returned.
    mode: "train", "eval" or "predict".

  Returns:
    The spec.

  Raises:
    ModelSpecError: says what is wrong and what would be right.
  """
  if mode not in _MODES:
    raise ModelSpecError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
  if not isinstance(spec, ModelSpec):
    hint = ": is its `return` missing?" if spec is None else ""
    raise ModelSpecError(f"model_fn must return a tf1ps.ModelSpec, got {spec!r}{hint}")
  if mode == "train" and spec.loss is None:
    raise ModelSpecError("model_fn returned no loss in mode 'train'")
  if mode == "eval" and spec.loss is None and not spec.metrics:
    raise ModelSpecError("model_fn returned neither a loss nor metrics in mode 'eval'")
  if mode == "predict" and spec.predictions is None:
    raise ModelSpecError("model_fn returned no predictions in mode 'predict'")
  if mode != "predict" and spec.loss is not None:
    _check_loss(spec.loss)
  if mode == "eval" and spec.metrics is not None:
    _check_metrics(spec.metrics)
  if mode == "predict":
    predictions_by_name(spec)
  if mode == "train" and not (spec.optimizer is None or hasattr(spec.optimizer, "apply_gradients")
                              and hasattr(spec.optimizer, "compute_gradients")):
    raise ModelSpecError(f"optimizer must be a tf.train.Optimizer or None, got {spec.optimizer!r}")
  return spec


def predictions_by_name(spec: ModelSpec) -> Dict[str, tf.Tensor]:
  """Returns the predictions as a dict; a single tensor's name is "prediction".

  Raises:
    ModelSpecError: they are no tensors of shape [batch, ...].
  """
  predictions = spec.predictions
  if not isinstance(predictions, dict):
    predictions = {PREDICTION: predictions}
  if not predictions:
    raise ModelSpecError("predictions is an empty dict")
  for name, tensor in predictions.items():
    _check_name("predictions", name)
    if not isinstance(tensor, tf.Tensor):
      raise ModelSpecError(f"prediction {name!r} must be a tensor, got {tensor!r}")
    if tensor.shape.ndims == 0:
      raise ModelSpecError(
        f"prediction {name!r} is a scalar: its first dimension must be the batch's")
  return predictions


def metrics_with_loss(spec: ModelSpec, batch_size: tf.Tensor) -> Dict[str, tuple]:
  """Returns the metrics of a checked spec, the mean loss among them.

  Args:
    spec: checked for mode "eval".
    batch_size: scalar int tensor. It weights the loss, so that a smaller last batch counts as much
      as it has examples: sum(loss * size) / sum(size).
  """
  metrics = dict(spec.metrics or {})
  if spec.loss is not None:
    metrics[LOSS_METRIC] = tf.metrics.mean(spec.loss, weights=tf.cast(batch_size, tf.float32))
  return metrics


def _check_loss(loss):
  if not isinstance(loss, tf.Tensor):
    raise ModelSpecError(f"loss must be a scalar float tensor, got {loss!r}")
  if not loss.dtype.is_floating:
    raise ModelSpecError(f"loss must be of a float type, got {loss.dtype.name}")
  if loss.shape.ndims not in (0, None):
    raise ModelSpecError(
      f"loss must be a scalar, got shape {loss.shape}: take its mean over the batch, such as "
      "tf.reduce_mean(loss)")


def _check_metrics(metrics):
  if not isinstance(metrics, dict):
    raise ModelSpecError(f"metrics must be a dict of name to (value, update_op), got {metrics!r}")
  for name, metric in metrics.items():
    _check_name("metrics", name)
    if name == LOSS_METRIC:
      raise ModelSpecError(
        f"metrics must not contain {LOSS_METRIC!r}: the mean of the loss has this name"
      )
    if not (isinstance(metric, (tuple, list)) and len(metric) == 2
            and tf.is_tensor(metric[0])  # or a variable, as some functions of tf.metrics return it
            and (tf.is_tensor(metric[1]) or isinstance(metric[1], tf.Operation))):
      raise ModelSpecError(f"metric {name!r} must be (value, update_op), as tf.metrics.accuracy "
                           f"and its like return it, got {metric!r}")
    if metric[0].shape.ndims not in (0, None):
      raise ModelSpecError(f"the value of metric {name!r} must be a scalar, got shape "
                           f"{metric[0].shape}")


def _check_name(where, name):
  if not isinstance(name, str) or not name:
    raise ModelSpecError(f"a name in {where} must be a string and not empty, got {name!r}")
