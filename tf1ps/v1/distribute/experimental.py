"""`tf.distribute.experimental`: TensorFlow's strategies, but for that of TPUs."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(
    __name__, tf.distribute.experimental, {"v1.refused_tpu": ["TPUStrategy"]})
