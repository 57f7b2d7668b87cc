"""Predictions of an exported model, or of an estimator, in this process."""

from __future__ import annotations

import tempfile

import tensorflow.compat.v1 as tf


class Predictor:
  """Predicts with a loaded model; it is called with {name of an input: its value}.

  Attributes:
    graph, session: the model's graph and session.
    feed_tensors, fetch_tensors: {name: tensor} of the model's inputs and outputs.
  """

  def __init__(self, session, inputs, outputs):
    """Takes the session of a loaded model, and {name: name of the tensor} twice."""
    self.session, self.graph = session, session.graph
    self.feed_tensors, self.fetch_tensors = (
      {name: self.graph.get_tensor_by_name(tensor) for name, tensor in names.items()}
      for names in (inputs, outputs))

  def __call__(self, input_dict):
    """Returns {name of an output: its value}; raises ValueError for an unknown input."""
    unknown = sorted(set(input_dict) - set(self.feed_tensors))
    if unknown:
      raise ValueError("The model has no input %s. Its inputs are %s." % (
        ", ".join(unknown), ", ".join(sorted(self.feed_tensors))))
    return self.session.run(self.fetch_tensors, {
      self.feed_tensors[name]: value for name, value in input_dict.items()})


def from_saved_model(export_dir, signature_def_key=None, signature_def=None, input_names=None,
                     output_names=None, tags=None, graph=None, config=None) -> Predictor:
  """Loads a SavedModel.

  Args:
    export_dir: the folder of the SavedModel.
    signature_def_key: the key of a signature of the model; None for "serving_default".
    signature_def: a signature, which replaces the model's signature.
    input_names, output_names: {name: name of the tensor}, which replace the signature's tensors.
    tags: the tags of the meta graph, with commas between them; None for "serve".
    graph: the graph to load the model into; None for a new graph.
    config: the config of the session.

  Raises:
    ValueError: the model has no such signature.
  """
  session = tf.Session(graph=graph or tf.Graph(), config=config)
  with session.graph.as_default():
    loaded = tf.saved_model.loader.load(
      session, tags.split(",") if isinstance(tags, str) else tags or ["serve"], export_dir)
  key = signature_def_key or "serving_default"
  if not (input_names and output_names) and signature_def is None:
    if key not in loaded.signature_def:
      raise ValueError("The model in %s has no signature %s. It has %s." % (
        export_dir, key, ", ".join(sorted(loaded.signature_def))))
    signature_def = loaded.signature_def[key]
  return Predictor(
    session,
    input_names or {name: info.name for name, info in signature_def.inputs.items()},
    output_names or {name: info.name for name, info in signature_def.outputs.items()})


def from_estimator(estimator, serving_input_receiver_fn, output_key=None, graph=None,
                   config=None) -> Predictor:
  """Loads the last checkpoint of an estimator; `output_key` is a key of its export_outputs."""
  with tempfile.TemporaryDirectory() as folder:
    export = estimator.export_saved_model(folder, serving_input_receiver_fn)
    return from_saved_model(tf.compat.as_str_any(export), output_key, graph=graph, config=config)
