"""`tf.compat`: its `v1` is `tf1ps.v1`, for programs that say `tf.compat.v1.train.Server`."""

from __future__ import annotations

import sys

import tensorflow as tf

from tf1ps.v1 import namespace as _namespace

v1 = sys.modules["tf1ps.v1"]
__getattr__, __dir__ = _namespace.overlay(__name__, tf.compat)
