"""The operations that a graph hands to its session in graph collections.

A script with its own loop builds an optimizer, `Clocks` or a mirrored model, and then opens a
session. It passes none of these objects to the session. So the graph carries their operations:

  clear operations    reset the state of rounds and clocks. The chief's session runs them after it
                      has initialised or restored the variables.
  partial updates     bool scalars. The chief's session reads them before it keeps the values on
                      the ps.
  all-reduce starts   compare the workers' models and broadcast the chief's values. Each session of
                      a mirrored model runs them in this order, with its generation as the feed.

No other state of this package travels in a collection. (Towers and mirrors change and restore
TensorFlow's own collections: variables, losses, update operations, summaries.)
"""

from __future__ import annotations

from typing import Dict, List

import tensorflow.compat.v1 as tf

from tf1ps.replication.collectives import GENERATIONS

_CLEAR, _PARTIAL, _STARTS = "tf1ps_clear", "tf1ps_partial_update", "tf1ps_all_reduce_starts"
_GENERATIONS = "tf1ps_all_reduce_generations"


def add_clear_op(operation: tf.Operation) -> None:
  """Adds an operation to those of `clear_ops`."""
  tf.add_to_collection(_CLEAR, operation)


def clear_ops(graph: tf.Graph) -> List[tf.Operation]:
  """Returns the operations that the chief runs after the variables have got new values."""
  return graph.get_collection(_CLEAR)


def add_partial_update(is_partial: tf.Tensor) -> None:
  """Adds a bool scalar to those of `partial_updates`."""
  tf.add_to_collection(_PARTIAL, is_partial)


def partial_updates(graph: tf.Graph) -> List[tf.Tensor]:
  """Returns bool scalars: whether an update was interrupted and the variables cannot be used."""
  return graph.get_collection(_PARTIAL)


def add_all_reduce_start(check_op: tf.Operation, start_op: tf.Operation,
                         generation: tf.Tensor) -> None:
  """Adds the operations that start a mirrored model, and the placeholder of their generation."""
  tf.get_collection_ref(_STARTS).extend([check_op, start_op])
  tf.add_to_collection(_GENERATIONS, generation)


def all_reduce_starts(graph: tf.Graph) -> List[tf.Operation]:
  """Returns the operations that start a mirrored model, if the graph has one."""
  return graph.get_collection(_STARTS)


def all_reduce_feed(graph: tf.Graph, generation: int) -> Dict[tf.Tensor, int]:
  """The feed of `all_reduce_starts` in sessions that begin together."""
  return {each: generation % GENERATIONS for each in graph.get_collection(_GENERATIONS)}
