"""`tf.contrib.slim`: the package tf_slim; `learning.train` uses tf1ps' Supervisor."""

from __future__ import annotations

from tf1ps.v1.contrib import libraries as _libraries

__getattr__, __dir__ = _libraries.overlay(
    __name__, libraries=["tf_slim"], path="python.slim")
