"""`tf.distribute`: the newer name of the server, too; no TPUs; all else is TensorFlow's."""

from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace

__getattr__, __dir__ = _namespace.overlay(
    __name__, tf.distribute, {"cluster": ["Server"], "v1.refused_tpu": ["TPUStrategy"]},
    namespaces=("cluster_resolver", "experimental"))
