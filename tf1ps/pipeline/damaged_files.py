"""Which file is damaged: TensorFlow says where in it the damage is, and not in which.

After the error all files of the graph are read once more, up to the first that cannot be, within a
limit of time.
"""

from __future__ import annotations

import time
import weakref
from typing import Callable, List

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, error_line

_ATTRIBUTE = "_tf1ps_read_files"
_graphs = weakref.WeakSet()


def add(paths: List[str], values: Callable[[int], tf.data.Dataset]) -> None:
  """Notes that the default graph reads files.

  Args:
    paths: their names.
    values: makes the dataset of strings that are in one of them, which is given by its position.
  """
  graph = tf.get_default_graph()
  setattr(graph, _ATTRIBUTE, getattr(graph, _ATTRIBUTE, []) + [
    (path, index, values) for index, path in enumerate(paths)])
  _graphs.add(graph)


def explain(error: BaseException) -> BaseException:
  """Says which file an error of a run is about, if it says that one is damaged.

  Args:
    error: what the run raised.

  Returns:
    The same kind of error with the file's name before its text; or the error itself.
  """
  if not isinstance(error, tf.errors.DataLossError):
    return error
  until = time.monotonic() + TIMING.file_check_limit
  for graph in list(_graphs):
    for path, index, values in getattr(graph, _ATTRIBUTE):
      text = _damage(values, index, until)
      if text is not None:
        return tf.errors.DataLossError(None, None, "%s: %s" % (path, text))
  return error


def _damage(values, index, until):
  with tf.Graph().as_default(), tf.Session() as session:
    iterator = tf.data.make_initializable_iterator(values(index).batch(1000))
    some = tf.size(iterator.get_next())
    session.run(iterator.initializer)
    while time.monotonic() < until:
      try:
        session.run(some)
      except tf.errors.DataLossError as error:
        return error_line(error)
      except tf.errors.OpError:
        return None
  return None
