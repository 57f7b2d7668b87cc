"""Reads the operations of a `tf.train.SessionManager`, which TensorFlow keeps private.

A program that makes its own manager hands it these operations, and hands the manager to a
Supervisor. The Supervisor needs the operations; the manager has no property for them, and its
methods wait without limits.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import tensorflow.compat.v1 as tf


class ManagedOperations(NamedTuple):
  """The operations of a manager; each may be None."""

  local_init_op: Optional[tf.Operation]
  ready_op: Optional[tf.Tensor]
  ready_for_local_init_op: Optional[tf.Tensor]


def operations_of(manager: tf.train.SessionManager) -> ManagedOperations:
  """Returns the operations that a manager was made with."""
  return ManagedOperations(
    manager._local_init_op, manager._ready_op, manager._ready_for_local_init_op)
