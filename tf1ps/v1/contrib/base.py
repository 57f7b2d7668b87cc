"""TensorFlow 1.15's own tf.contrib."""

from __future__ import annotations

import importlib

import tensorflow


def of(namespace: str):
  """Returns the module tensorflow.contrib.NAMESPACE; None where TensorFlow has no tf.contrib."""
  if not hasattr(tensorflow, "contrib"):
    return None
  return importlib.import_module("tensorflow.contrib." + namespace)
