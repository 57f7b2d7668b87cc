"""`tf.contrib.losses`, by the package tf_slim."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__, libraries=["tf_slim.losses"], advice="use tf.losses", path="python.losses")
