"""`tf.python`: TensorFlow's internals, for programs that reach them through `tf`.

They are TensorFlow's own, also where tf1ps replaces a public name.
"""

from __future__ import annotations

import importlib
import sys

sys.modules[__name__] = importlib.import_module("tensorflow.python")
