"""Exports a checkpoint's model as a SavedModel for serving.

1. input_fn in mode "predict" gives the types and shapes of the features, in a graph that is then
   discarded.
2. In a new graph each feature becomes a placeholder with an open first dimension, and model_fn
   builds the model on the placeholders, without labels.
3. The checkpoint is restored and saved with the signature "serving_default", from the features to
   the predictions. TensorFlow 2 reads it by `tf.saved_model.load`. TensorFlow 1.15 reads its own
   SavedModels. It reads a SavedModel of TensorFlow 2 only if the model_fn makes ref variables
   (use_resource=False).
4. The directory gets its name when it is complete. TensorFlow writes the directory, so it may lie
   on any file system that TensorFlow knows, such as gs://.
"""

from __future__ import annotations

import os
from typing import Dict, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import make_saver_for, restore_checkpoint
from tf1ps.compat import Error, new_graph, temporary_path
from tf1ps.program import contract, trained_model, variable_kind


class Export(NamedTuple):
  """The result of an export."""

  export_dir: str  # the SavedModel's directory
  checkpoint: str  # the checkpoint that was used
  inputs: Dict[str, str]  # name to type and shape, such as "float32 [?, 64]"
  outputs: Dict[str, str]  # the same for the predictions


class ExportError(Error, RuntimeError):
  """A model cannot be exported."""


def export_saved_model(program: contract.Program, checkpoint_dir: str, export_dir: str,
                       checkpoint: Optional[str] = None,
                       config: Optional[tf.ConfigProto] = None) -> Export:
  """Writes a SavedModel of a checkpoint; see `calls.export`.

  Args:
    program, checkpoint_dir, checkpoint: as for `calls.export`.
    export_dir: the argument `output` of `calls.export`, a path or a URL.
    config: the session's config.
  """
  export_dir = export_dir.rstrip("/") if "://" in export_dir else os.path.abspath(export_dir)
  _check_place(export_dir)
  return trained_model.use_newest(
    checkpoint_dir, checkpoint, lambda path: _export(program, path, export_dir, config))


def _export(program, checkpoint, export_dir, config) -> Export:
  features, is_single = contract.named_features(program)
  with new_graph(), variable_kind.resource_variables():
    inputs = {name: _placeholder(tensor) for name, tensor in features.items()}
    tf.train.get_or_create_global_step()
    spec = contract.build_model(
      program, inputs[contract.FEATURES] if is_single else inputs, None, "predict")
    outputs = contract.predictions_by_name(spec)
    _save(export_dir, checkpoint, inputs, outputs, config)
  return Export(export_dir, checkpoint, _describe(inputs), _describe(outputs))


def _check_place(export_dir: str) -> None:
  """Raises ExportError if no directory of this name can be made."""
  try:
    if not tf.gfile.Exists(export_dir):
      return
    is_empty = tf.gfile.IsDirectory(export_dir) and not tf.gfile.ListDirectory(export_dir)
  except tf.errors.OpError as error:
    raise ExportError(f"export_dir {export_dir} cannot be written: {error.message}") from error
  if not is_empty:
    raise ExportError(f"export_dir {export_dir} exists and is not an empty directory")


def _placeholder(tensor: tf.Tensor) -> tf.Tensor:
  shape = tensor.shape
  if shape.ndims:
    shape = tf.TensorShape([None]).concatenate(shape[1:])
  return tf.placeholder(tensor.dtype, shape)


def _save(export_dir, checkpoint, inputs, outputs, config) -> None:
  saver = make_saver_for(checkpoint)
  initialise = tf.group(tf.local_variables_initializer(), tf.tables_initializer())
  signature = tf.saved_model.predict_signature_def(inputs, outputs)
  temporary = temporary_path(export_dir)
  try:
    with tf.Session("", config=config) as session:
      restore_checkpoint(session, saver, checkpoint)
      builder = tf.saved_model.Builder(temporary)
      # An older TensorFlow may not know new attributes, so attributes with defaults are left out.
      builder.add_meta_graph_and_variables(
        session, [tf.saved_model.tag_constants.SERVING],
        {tf.saved_model.signature_constants.DEFAULT_SERVING_SIGNATURE_DEF_KEY: signature},
        main_op=initialise, clear_devices=True, strip_default_attrs=True)
      builder.save()
    _check_place(export_dir)  # an object store would mix two exports
    tf.gfile.Rename(temporary, export_dir, overwrite=True)
  finally:
    if tf.gfile.Exists(temporary):
      tf.gfile.DeleteRecursively(temporary)


def _describe(tensors: Dict[str, tf.Tensor]) -> Dict[str, str]:
  described = {}
  for name, tensor in tensors.items():
    shape = "of any shape"
    if tensor.shape.ndims is not None:
      sizes = ["?" if size is None else str(size) for size in tensor.shape.as_list()]
      shape = f"[{', '.join(sizes)}]"
    described[name] = f"{tensor.dtype.name} {shape}"
  return described
