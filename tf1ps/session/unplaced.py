"""Places variables without a device where TensorFlow 1 places them (compat/first_task.py).

`tf1ps.v1` switches this placement on. Otherwise TensorFlow 2 places such variables.
"""

from __future__ import annotations

import logging

import tensorflow.compat.v1 as tf

from tf1ps.cluster import Cluster
from tf1ps.compat import place_variables

_log = logging.getLogger("tf1ps")
_is_on = False  # a process global: the import of a module decides before any session exists


def place_as_tensorflow_1() -> None:
  """Makes later sessions put variables without a device on the cluster's first task."""
  global _is_on
  _is_on = True


def place_unplaced(graph: tf.Graph, cluster: Cluster) -> None:
  """Places a graph's variables without a device before a session runs them, if switched on."""
  if not _is_on or len(cluster.tasks()) < 2:
    return
  task = cluster.tasks()[0].name
  names = place_variables(graph, task)
  if names:
    _log.info("%d variables without a device, such as %s, are placed on %s, as TensorFlow 1 does",
              len(names), names[0], task)
