"""New versions of the functions of `tf.contrib.estimator` that change optimizers and estimators."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


class _ClippingOptimizer(tf.train.Optimizer):
  """Clips all gradients together, and leaves the rest to another optimizer."""

  def __init__(self, optimizer, clip_norm):
    super().__init__(use_locking=False, name="ClipByNorm" + optimizer.get_name())
    self._optimizer = optimizer
    self._clip_norm = clip_norm

  def compute_gradients(self, *args, **kwargs):
    return self._optimizer.compute_gradients(*args, **kwargs)

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    gradients, variables = zip(*grads_and_vars)
    gradients, _ = tf.clip_by_global_norm(gradients, self._clip_norm)
    return self._optimizer.apply_gradients(
      list(zip(gradients, variables)), global_step=global_step, name=name)

  def get_slot(self, var, name):
    return self._optimizer.get_slot(var, name)

  def get_slot_names(self):
    return self._optimizer.get_slot_names()

  def variables(self):
    return self._optimizer.variables()


def clip_gradients_by_norm(optimizer: tf.train.Optimizer, clip_norm) -> tf.train.Optimizer:
  """Returns an optimizer that first clips the gradients by their global norm.

  Args:
    optimizer: applies the clipped gradients.
    clip_norm: the largest norm that all gradients together may have.
  """
  return _ClippingOptimizer(optimizer, clip_norm)


def forward_features(estimator, keys=None, sparse_default_values=None):
  """Returns an estimator whose predictions also contain some of the features.

  Args:
    estimator: a `tf.estimator.Estimator` whose predictions are a dict.
    keys: a feature's name, or a list of them; None for all.
    sparse_default_values: {name: the value in the gaps of a sparse feature}.

  Raises:
    ValueError: a feature does not exist, or has the name of a prediction.
  """
  import tf1ps.v1 as tf1  # the package of estimators is not always installed
  keys = [keys] if isinstance(keys, str) else keys

  def model_fn(features, labels, mode, config):
    spec = estimator.model_fn(features, labels, mode, config)
    names = list(features) if keys is None else keys
    for name in names:
      if name not in features or name in spec.predictions:
        raise ValueError("forward_features cannot forward %r: the features are %s, the predictions "
                         "%s." % (name, sorted(features), sorted(spec.predictions)))
    if mode != tf1.estimator.ModeKeys.PREDICT:
      return spec
    forwarded = {name: _dense(features[name], (sparse_default_values or {}).get(name))
                 for name in names}
    outputs = {key: _with(output, forwarded, tf1.estimator.export.PredictOutput)
               for key, output in (spec.export_outputs or {}).items()}
    return spec._replace(predictions={**spec.predictions, **forwarded}, export_outputs=outputs)

  return tf1.estimator.Estimator(
    model_fn=model_fn, model_dir=estimator.model_dir, config=estimator.config)


def _dense(feature, default):
  if isinstance(feature, tf.SparseTensor) and default is not None:
    return tf.sparse.to_dense(feature, default_value=default)
  return feature


def _with(output, forwarded, kind):
  """Adds features to the predictions of an exported model; classes and scores stay unchanged."""
  return kind({**output.outputs, **forwarded}) if isinstance(output, kind) else output
