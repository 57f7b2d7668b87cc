"""Adds operations to a final graph.

A `MonitoredSession` or a `Supervisor` makes its graph final, so that no step adds operations by
mistake. Its own hooks may add some all the same, for which TensorFlow has the private method
`Graph._unsafe_unfinalize`. Sessions take in what their graph has gained before their next run, also
while other threads make runs.
"""

from __future__ import annotations

import contextlib

import tensorflow.compat.v1 as tf


@contextlib.contextmanager
def changeable(graph: tf.Graph):
  """Lets this scope add operations to a graph, which is final again afterwards if it was."""
  if not graph.finalized:
    yield
    return
  graph._unsafe_unfinalize()
  try:
    yield
  finally:
    graph.finalize()
