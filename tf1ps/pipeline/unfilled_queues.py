"""Finds queues that a run dequeues from and nothing fills, so that the run would wait forever.

The queue has no runner, or its runner was not added to the graph's collection. The graph is
searched only when a run lasts for seconds. Two kinds of queues are ignored: a queue with a shared
name, because another client may fill it, and a queue that the same run also enqueues into.
"""

from __future__ import annotations

import logging
from typing import Iterable, List

import tensorflow.compat.v1 as tf

from tf1ps.graph import needed_ops

_log = logging.getLogger("tf1ps")


def find(graph: tf.Graph, fetches) -> List[str]:
  """Returns the names of the queues that fetches dequeue from and nothing in the graph fills."""
  runners = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
  taking = needed_ops(_ops(graph, fetches))
  filling = taking + needed_ops([op for runner in runners for op in runner.enqueue_ops])
  filled = {op.inputs[0].name for op in filling if op.type.startswith("QueueEnqueue")}
  unfilled = {op.inputs[0].op.name for op in taking
           if op.type.startswith("QueueDequeue") and op.inputs[0].name not in filled
           and _is_private(op.inputs[0].op)}
  return sorted(unfilled)


def warn_unfilled_queues(graph: tf.Graph, fetches) -> None:
  """Warns of unfilled queues during a long run; the arguments are those of `find`."""
  for name in find(graph, fetches):
    _log.warning(
      "a run waits for the queue %s, which no queue runner of the graph fills. Call "
      "tf.train.add_queue_runner with its QueueRunner, or enqueue in a thread of your own.", name)


def _ops(graph, fetches) -> Iterable[tf.Operation]:
  # tf.nest cannot sort the keys of a MonitoredSession's fetches, which are hooks.
  if isinstance(fetches, dict):
    fetches = list(fetches.values())
  if isinstance(fetches, (list, tuple)):
    for fetch in fetches:
      yield from _ops(graph, fetch)
    return
  try:
    element = graph.as_graph_element(fetches)
  except (TypeError, ValueError, KeyError):
    return  # None, or a fetch of an unknown kind
  yield getattr(element, "op", element)


def _is_private(queue_op):
  return "QueueV2" in queue_op.type and not queue_op.get_attr("shared_name")
