"""Packs the messages of a legacy program's graph before its first session (transfer/graph_packing).

Every drop-in session on a `tf1ps.Server` packs its graph, including the session of an estimator. A
program in tf1ps's own form packs its messages while it builds its step.
"""

from __future__ import annotations

import logging
import weakref
from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import Cluster
from tf1ps.transfer import PACK_VARIABLE, check_pack_bytes, pack_bytes_of_process, pack_graph

_log = logging.getLogger("tf1ps")
_seen: "weakref.WeakSet[tf.Graph]" = weakref.WeakSet()


def pack_once(graph: tf.Graph, cluster: Cluster, pack_bytes: Optional[int] = None) -> None:
  """Packs a graph, unless a session has run it.

  Args:
    graph: the graph.
    cluster: the cluster of this process's server.
    pack_bytes: tensors of this number of bytes or more travel alone; 0: all tensors travel alone;
      None: the value of TF1PS_PACK_BYTES.

  Raises:
    ValueError: pack_bytes is not a number of bytes.
  """
  if pack_bytes is None:
    pack_bytes = pack_bytes_of_process()
  check_pack_bytes(pack_bytes)
  if graph in _seen or not pack_bytes or not cluster.ps:
    return
  _seen.add(graph)
  if graph.finalized:
    _log.info("the graph was final before its session, so its messages are not packed")
    return
  try:
    with graph.as_default(), tf.device(None), tf.control_dependencies(None):
      packed = pack_graph(pack_bytes, cluster.task.name)
  except Exception as error:  # a program that cannot be packed runs unchanged
    _log.warning("the messages of this graph are not packed: %s: %s", type(error).__name__, error)
    return
  if packed.pulls or packed.pushes:
    _log.info("the values of %d variables travel in %d messages, %d gradients in %d (%s=0 sends "
              "each alone)", packed.variables, packed.pulls, packed.gradients, packed.pushes,
              PACK_VARIABLE)
