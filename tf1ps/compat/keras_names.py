"""A new graph in which Keras gives the same names as in any other new graph.

TensorFlow 1 and `tf_keras` count the names of Keras layers per graph, Keras 3 counts them per
process: the first `Dense` layer of a second graph is "dense_1". A checkpoint of the first graph
then fits no other graph of the process. Keras 3 has a public way to begin anew, `clear_session`,
but it also drops the user's settings and refuses to run inside a graph. So this module calls
`keras.src.utils.naming.reset_uids`.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Iterator

import tensorflow.compat.v1 as tf

_NAMING = "keras.src.utils.naming"  # a program that uses no Keras does not import it


@contextlib.contextmanager
def new_graph() -> Iterator[tf.Graph]:
  """Makes a graph the default graph; the names of Keras layers begin anew in it, and after it.

  Yields:
    The graph.
  """
  _reset_keras_names()
  with tf.Graph().as_default() as graph:
    try:
      yield graph
    finally:
      _reset_keras_names()


def _reset_keras_names() -> None:
  if _NAMING in sys.modules:
    sys.modules[_NAMING].reset_uids()
