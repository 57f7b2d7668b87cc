"""How an Experiment exports: `tf.contrib.learn.ExportStrategy`, as an exporter of tf.estimator."""

from __future__ import annotations

import inspect
import sys

import tf1ps.v1 as tf1

__path__ = []  # legacy programs import utils.saved_model_export_utils as a module
saved_model_export_utils = sys.modules[__name__]


class ExportStrategy(tf1.estimator.Exporter):
  """Exports by a function.

  Args:
    name: the folder below "export" of the model directory.
    export_fn: called as `export_fn(estimator, export_path)`; returns the path of the export. It
      also gets `checkpoint_path`, `eval_result` and `strip_default_attrs` as far as it has
      parameters of these names.
    strip_default_attrs: the value for that parameter.
  """

  def __init__(self, name, export_fn, strip_default_attrs=None):
    self._name = name
    self.export_fn = export_fn
    self.strip_default_attrs = strip_default_attrs

  @property
  def name(self) -> str:
    return self._name

  def export(self, estimator, export_path, checkpoint_path=None, eval_result=None,
             is_the_final_export=True):
    """Exports; returns the path."""
    given = dict(checkpoint_path=checkpoint_path, eval_result=eval_result,
                 strip_default_attrs=self.strip_default_attrs)
    taken = inspect.signature(self.export_fn).parameters
    return self.export_fn(
      estimator, export_path, **{name: given[name] for name in given if name in taken})


def make_export_strategy(serving_input_fn, default_output_alternative_key=None, assets_extra=None,
                         as_text=False, exports_to_keep=5, strip_default_attrs=None):
  """Returns a strategy that exports a SavedModel, and keeps the newest exports.

  Args:
    serving_input_fn: returns a `tf.estimator.export.ServingInputReceiver`.
    default_output_alternative_key: must be None, because export_outputs of the model_fn define the
      outputs.
    assets_extra: {path in the export: file to copy}.
    as_text: whether the graph is written as text.
    exports_to_keep: the number of exports to keep; None keeps all.
    strip_default_attrs: ignored; TensorFlow's exports always strip default attributes.

  Raises:
    ValueError: default_output_alternative_key is not None.
  """
  if default_output_alternative_key is not None:
    raise ValueError(
      "make_export_strategy cannot have default_output_alternative_key=%r with tf.estimator. Name "
      "the outputs in export_outputs of the EstimatorSpec" % default_output_alternative_key)
  return tf1.estimator.LatestExporter(
    "Servo", serving_input_receiver_fn=serving_input_fn, assets_extra=assets_extra,
    as_text=as_text, exports_to_keep=exports_to_keep)
