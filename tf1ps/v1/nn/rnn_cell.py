"""`tf.nn.rnn_cell`, by the package tf_keras, which has kept the cells for every TensorFlow."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import graph_mode as _graph_mode
from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(
    __name__, tf.nn.rnn_cell,
    gone=_graph_mode.explain_missing_keras("nn.rnn_cell", "LSTMCell"))
