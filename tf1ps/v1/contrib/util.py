"""`tf.contrib.util`: its names are in TensorFlow."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__, heirs={"tf": "constant_value=get_static_value make_ndarray make_tensor_proto"})
