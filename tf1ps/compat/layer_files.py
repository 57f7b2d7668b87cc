"""Names that the files of `tensorflow.python.layers` have, and the namespace `tf.layers` has not.

tf1ps-run takes `tf.layers` for these files. On TensorFlow 2 tf_keras has their contents.
"""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow.compat.v1 as tf

_ALIASES = {"BatchNorm": "BatchNormalization", "batch_norm": "batch_normalization"}
_OF_BASE = ("keras_style_scope", "set_keras_style")
_BASES = ("tf_keras.src.legacy_tf_layers.base", "tensorflow.python.layers.base")
LAYER_FILE_NAMES = frozenset([*_ALIASES, *_OF_BASE])


def layer_file_name(name: str) -> Any:
  """Returns the value of a name in LAYER_FILE_NAMES."""
  if name in _ALIASES:
    return getattr(tf.layers, _ALIASES[name])
  is_1 = tf.version.VERSION.startswith("1.")
  return getattr(importlib.import_module(_BASES[is_1]), name)
