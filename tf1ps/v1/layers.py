"""`tf.layers`, by the package tf_keras, which has kept them for every TensorFlow."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import graph_mode as _graph_mode
from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(
    __name__, tf.layers, gone=_graph_mode.explain_missing_keras("layers", "dense"))
