"""`tf.nn`, with the cells of `tf.nn.rnn_cell`."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(__name__, tf.nn, namespaces=("rnn_cell",))
