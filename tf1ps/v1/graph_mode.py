"""TensorFlow as a TensorFlow-1 program expects it: in graph mode, with the layers of Keras 2.

The losses of regularizers are tensors.

TensorFlow reads TF_USE_LEGACY_KERAS when it is imported, and again when a program first uses its
Keras, `tf.layers` or `tf.nn.rnn_cell`. This module sets the variable before both reads, unless the
program has imported TensorFlow earlier.
"""

from __future__ import annotations

import functools
import importlib.util
import os

from tf1ps import compat
from tf1ps.v1 import namespace as namespace_lib

_USE_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"


def import_tensorflow():
  """Imports TensorFlow, chooses `tf_keras` if it is installed, and switches to graph mode.

  If the environment already sets TF_USE_LEGACY_KERAS, that choice stays.

  Returns:
    The module tensorflow.compat.v1.
  """
  if importlib.util.find_spec("tf_keras"):
    os.environ.setdefault(_USE_LEGACY_KERAS, "1")
  tf = compat.import_quietly()
  verbosity = tf.logging.get_verbosity()
  tf.logging.set_verbosity(tf.logging.ERROR)  # otherwise the intended change causes a warning
  tf.disable_v2_behavior()
  tf.logging.set_verbosity(verbosity)
  compat.prepare_estimator()
  compat.keep_tensors()
  return tf


def explain_missing_keras(namespace: str, probe: str):
  """Makes the look-up of names that are missing in a namespace that TensorFlow takes from Keras.

  Args:
    namespace: its name below tensorflow.compat.v1, such as "layers".
    probe: a name that the namespace has if Keras 2 is installed.

  Returns:
    A function that takes a name. It returns a name of the files of `tensorflow.python.layers`, or
    raises AttributeError, which says what to do.
  """
  def explain(name):
    import tensorflow.compat.v1 as tf
    module = functools.reduce(getattr, namespace.split("."), tf)
    full = "%s.%s" % (namespace, name)
    if hasattr(module, probe):
      if name in compat.LAYER_FILE_NAMES:
        return compat.layer_file_name(name)
      raise namespace_lib.UnknownNameError(full)
    raise AttributeError("tf.%s is not there: %s." % (full, _keras_problem()))
  return explain


def _keras_problem() -> str:
  if not importlib.util.find_spec("tf_keras"):
    return "it needs the package tf_keras. Run: pip install 'tf1ps[legacy]'"
  if os.environ.get(_USE_LEGACY_KERAS) not in ("1", "true", "True"):
    return "the environment sets %s=%s. Remove it, or set it to 1" % (
        _USE_LEGACY_KERAS, os.environ.get(_USE_LEGACY_KERAS))
  return ("the program used Keras 3 before it imported tf1ps.v1. Import tf1ps.v1 first, or set "
          "%s=1 in the environment" % _USE_LEGACY_KERAS)
