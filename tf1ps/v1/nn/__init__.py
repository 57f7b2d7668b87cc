"""`tf.nn`, with the cells, and with names and arguments from before TensorFlow 1.0."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace
from tf1ps.v1 import renamed as _renamed
from tf1ps.v1.old_orders import (  # noqa: F401
    nce_loss,
    sampled_softmax_loss,
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    sparse_softmax_cross_entropy_with_logits,
)

__getattr__, __dir__ = _namespace.overlay(
    __name__, tf.nn, namespaces=("rnn_cell",), gone=_renamed.finder("nn"))
