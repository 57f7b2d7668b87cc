"""The operations that a graph hands to its session by graph collections, with the reasons.

A script with its own loop builds an optimizer, `Clocks` or a mirrored model, and then opens a
session; it hands none of these to the session. So the graph carries their operations:

  clear operations    reset the state of rounds and clocks. The chief's session runs them after it
                      has initialised or restored the variables.
  partial updates     bool scalars. The chief's session asks them before it keeps the values that
                      it finds on the ps.
  all-reduce starts   compare the workers' models and broadcast the chief's values. Each session of
                      a mirrored model runs them in this order.

No other state of this room travels by a collection. (Towers and mirrors read and restore
TensorFlow's own ones: variables, losses, update operations, summaries.)
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

_CLEAR, _PARTIAL, _STARTS = "tf1ps_clear", "tf1ps_partial_update", "tf1ps_all_reduce_starts"


def add_clear_op(operation: tf.Operation) -> None:
  """Adds an operation to those of `clear_ops`."""
  tf.add_to_collection(_CLEAR, operation)


def clear_ops(graph: tf.Graph) -> List[tf.Operation]:
  """The operations that the chief runs after the variables got new values."""
  return graph.get_collection(_CLEAR)


def add_partial_update(is_partial: tf.Tensor) -> None:
  """Adds a bool scalar to those of `partial_updates`."""
  tf.add_to_collection(_PARTIAL, is_partial)


def partial_updates(graph: tf.Graph) -> List[tf.Tensor]:
  """Bool scalars: whether an update was interrupted, so that the variables cannot be used."""
  return graph.get_collection(_PARTIAL)


def add_all_reduce_start(operation: tf.Operation) -> None:
  """Adds an operation to those of `all_reduce_starts`."""
  tf.add_to_collection(_STARTS, operation)


def all_reduce_starts(graph: tf.Graph) -> List[tf.Operation]:
  """The operations that start a mirrored model; empty where the graph has none."""
  return graph.get_collection(_STARTS)
