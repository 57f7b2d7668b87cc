"""Queues that a run takes from and nobody fills: the run would wait for ever, and say nothing.

Such a queue has a runner that was made but not added to the graph's collection, or none at all. It
is found in the graph alone, and only when a run has lasted for seconds. A queue with a shared name
may be filled by another client, one that the same run puts into by itself; they do not count.
"""

from __future__ import annotations

import logging
from typing import Iterable, List

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import iterators

_log = logging.getLogger("tf1ps")


def find(graph: tf.Graph, fetches) -> List[str]:
  """Returns the names of the queues that fetches take from and nothing in the graph fills.

  Args:
    graph: the graph.
    fetches: as for `tf.Session.run`.
  """
  runners = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
  taking = iterators.behind(list(_ops(graph, fetches)))
  filling = taking | iterators.behind([op for one in runners for op in one.enqueue_ops])
  filled = {op.inputs[0].name for op in filling if op.type.startswith("QueueEnqueue")}
  found = {op.inputs[0].op.name for op in taking
           if op.type.startswith("QueueDequeue") and op.inputs[0].name not in filled
           and _is_private(op.inputs[0].op)}
  return sorted(found)


def warn_unfilled_queues(graph: tf.Graph, fetches) -> None:
  """Warns of such queues; for a run that lasts; the arguments are those of `find`."""
  for name in find(graph, fetches):
    _log.warning(
      "a run waits, and takes from the queue %s, which no queue runner of the graph fills: unless "
      "a thread of the program's own does, call tf.train.add_queue_runner where its QueueRunner "
      "is made", name)


def _ops(graph, fetches) -> Iterable[tf.Operation]:
  # Not by tf.nest: a MonitoredSession's fetches have hooks as keys, which cannot be sorted.
  if isinstance(fetches, dict):
    fetches = list(fetches.values())
  if isinstance(fetches, (list, tuple)):
    for one in fetches:
      yield from _ops(graph, one)
    return
  try:
    element = graph.as_graph_element(fetches)
  except (TypeError, ValueError, KeyError):
    return  # None, or of a kind of its own
  yield getattr(element, "op", element)


def _is_private(queue_op):
  return "QueueV2" in queue_op.type and not queue_op.get_attr("shared_name")
