"""The exporter of `tf.contrib.session_bundle`; it writes a SavedModel, which today's servers read.

A signature here is a signature of a SavedModel. The two named signatures `inputs` and `outputs` are
the two halves of such a signature.
"""

from __future__ import annotations

import os

import tensorflow.compat.v1 as tf

_DEFAULT = "serving_default"


def generic_signature(name_tensor_map):
  """Returns a signature without a method: as `inputs` or `outputs`, it is half of a signature."""
  return _signature(name_tensor_map, name_tensor_map, "")


def classification_signature(input_tensor, classes_tensor=None, scores_tensor=None):
  """Returns the signature of a classifier."""
  outputs = {"classes": classes_tensor, "scores": scores_tensor}
  return _signature({"inputs": input_tensor},
                    {name: each for name, each in outputs.items() if each is not None},
                    "tensorflow/serving/classify")


def regression_signature(input_tensor, output_tensor):
  """Returns the signature of a regression."""
  return _signature({"inputs": input_tensor}, {"outputs": output_tensor},
                    "tensorflow/serving/regress")


class Exporter:
  """Exports a model with the variables of a session."""

  def __init__(self, saver):
    """Takes the saver of the model's variables."""
    self._saver = saver
    self._init_op = self._assets = None
    self._signatures = {}

  def init(self, graph_def=None, init_op=None, clear_devices=False, default_graph_signature=None,
           named_graph_signatures=None, assets_collection=None, assets_callback=None):
    """Prepares the export.

    Args:
      graph_def, clear_devices, assets_callback: ignored. The exported graph is the session's graph,
        without devices, because the devices of a cluster do not exist elsewhere.
      init_op: the operation that a server runs when it has loaded the model.
      default_graph_signature: a signature of the functions above.
      named_graph_signatures: {name: signature}.
      assets_collection: tensors with the paths of files that belong to the model.
    """
    del graph_def, clear_devices, assets_callback
    named = dict(named_graph_signatures or {})
    if {"inputs", "outputs"} <= set(named):
      inputs, outputs = named.pop("inputs"), named.pop("outputs")
      named[_DEFAULT] = tf.saved_model.build_signature_def(
        inputs.inputs, outputs.outputs, tf.saved_model.signature_constants.PREDICT_METHOD_NAME)
    if default_graph_signature is not None:
      named[_DEFAULT] = default_graph_signature
    self._signatures, self._init_op, self._assets = named, init_op, assets_collection

  def export(self, export_dir_base, global_step_tensor, sess=None, exports_to_keep=None):
    """Writes a SavedModel into a folder below export_dir_base that is named by the global step.

    Args:
      export_dir_base: the folder of the exports.
      global_step_tensor: the global step.
      sess: the session; None for the default session.
      exports_to_keep: how many of the newest exports stay; None for all.

    Returns:
      The path.

    Raises:
      ValueError: no session is open, or the export exists already.
    """
    session = sess or tf.get_default_session()
    if session is None:
      raise ValueError("The exporter needs a session: export(..., sess=session).")
    step = tf.train.global_step(session, global_step_tensor)
    path = os.path.join(tf.compat.as_str_any(export_dir_base), "%08d" % step)
    if tf.gfile.Exists(path):
      raise ValueError("the export %s exists already: remove it, or give another folder" % path)
    self._write(session, path)
    if exports_to_keep is not None:
      exports = sorted(name.rstrip("/") for name in tf.gfile.ListDirectory(export_dir_base)
                       if name.rstrip("/").isdigit())
      for name in exports[:-exports_to_keep]:
        tf.gfile.DeleteRecursively(os.path.join(export_dir_base, name))
    return path

  def _write(self, session, path):
    """Writes the model from a copy of its graph, because a session's graph may be finalized."""
    values = path + ".variables"
    self._saver.save(session, values, write_meta_graph=False, write_state=False)
    with session.graph.as_default():
      model = self._saver.export_meta_graph()
    with tf.Graph().as_default() as graph, tf.Session() as copy:
      saver = tf.train.import_meta_graph(model, clear_devices=True)
      saver.restore(copy, values)
      init_op = self._init_op and graph.get_operation_by_name(self._init_op.name)
      assets = [graph.get_tensor_by_name(tensor.name) for tensor in self._assets or ()]
      builder = tf.saved_model.Builder(path)
      builder.add_meta_graph_and_variables(
        copy, ["serve"], self._signatures, assets, main_op=init_op, saver=saver)
      builder.save()
    tf.train.remove_checkpoint(values)


def _signature(inputs, outputs, method):
  return tf.saved_model.build_signature_def(
    *({name: tf.saved_model.build_tensor_info(tensor) for name, tensor in names.items()}
      for names in (inputs, outputs)), method)
