"""`tf.contrib`: what legacy programs use of it, by the library that has it today.

TensorFlow 1.15 has it all, and only tf1ps' drop-ins take their places.
"""

from __future__ import annotations

import tensorflow
import tensorflow.compat.v1 as tf

from tf1ps.v1 import namespace as _namespace


def _gone(name):
  if name in _TENSORFLOWS:
    return getattr(tf, name)
  raise AttributeError(
      "tf.contrib.%s is not there: TensorFlow 2 has no tf.contrib, and tf1ps.v1 has only %s of it. "
      "Write it anew, or stay with TensorFlow 1.15."
      % (name, ", ".join(sorted(_NAMESPACES + _TENSORFLOWS))))


_TENSORFLOWS = ("distributions", "keras")  # TensorFlow 2 has them under this name
_NAMESPACES = (
  "cluster_resolver", "crf", "data", "deprecated", "estimator", "framework", "layers", "learn",
  "lookup", "losses", "metrics", "opt", "rnn", "seq2seq", "slim", "tpu", "training", "util")
__getattr__, __dir__ = _namespace.overlay(
    __name__, getattr(tensorflow, "contrib", None), namespaces=_NAMESPACES, gone=_gone)
