"""What an accumulator counts: its time step, and what became of the gradients.

A table beside the accumulator, from int64 to int64. It is read and written in the steps of the
accumulator's guard alone, so that adding one is never lost.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple

import tensorflow.compat.v1 as tf

TAKEN, STALE, FULL = 1, 2, 3  # what becomes of a gradient
_TIME_STEP = 0  # the key of the time step; the totals are at TAKEN, STALE and FULL
_EACH = 4  # keys that each worker has


class Counts(NamedTuple):
  """How many gradients were applied since the accumulator was made."""

  taken: int  # averaged, or waiting for it
  stale: int  # dropped, being older than the time step
  full: int  # dropped, for want of room
  workers: Dict[int, tuple]  # (taken, stale, full) by worker, of those who said their index


class CountTable:
  """The table, in one graph."""

  def __init__(self, container: str, shared_name: str):
    self._handle = tf.raw_ops.MutableHashTableV2(
      key_dtype=tf.int64, value_dtype=tf.int64, container=container, shared_name=shared_name)

  def time_step(self) -> tf.Tensor:
    """The time step, an int64 scalar; 0 at first."""
    return self._find(tf.constant(_TIME_STEP, tf.int64))

  def set_time_step(self, step: tf.Tensor) -> tf.Operation:
    """Replaces the time step."""
    return self._insert(tf.constant(_TIME_STEP, tf.int64), step)

  def count(self, outcome: tf.Tensor, worker: tf.Tensor) -> tf.Operation:
    """Counts a gradient, in all and for its worker; -1 is nobody. Both are int64 scalars."""
    keys = tf.stack([outcome, outcome + _EACH * (worker + 1)])
    return self._insert(keys, self._find(keys) + 1)

  def export(self) -> List[tf.Tensor]:
    """All keys and values, for `time_step_of` and `counts_of`."""
    return list(tf.raw_ops.LookupTableExportV2(
      table_handle=self._handle, Tkeys=tf.int64, Tvalues=tf.int64))

  def _find(self, keys):
    return tf.raw_ops.LookupTableFindV2(
      table_handle=self._handle, keys=keys, default_value=tf.constant(0, tf.int64))

  def _insert(self, keys, values):
    return tf.raw_ops.LookupTableInsertV2(table_handle=self._handle, keys=keys, values=values)


def time_step_of(keys, values) -> int:
  """The time step in an exported table."""
  return dict(zip(keys.tolist(), values.tolist())).get(_TIME_STEP, 0)


def counts_of(keys, values) -> Counts:
  """The counts in an exported table."""
  found = dict(zip(keys.tolist(), values.tolist()))

  def of(worker):
    return tuple(found.get(_EACH * (worker + 1) + outcome, 0) for outcome in (TAKEN, STALE, FULL))

  workers = sorted({key // _EACH - 1 for key in found if key >= _EACH})
  return Counts(*of(-1), workers={worker: of(worker) for worker in workers})
