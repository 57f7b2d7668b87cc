"""The turn book: what a ps knows of a synchronous job, one line for each replica.

A turn is what leads to one update. The book says which turn it is, who takes part, and whose
gradients for this turn have come. It is one small table on one task; the functions here take it
apart, change it and put it together again, always under the lock of its guard (turns.py).
"""

from __future__ import annotations

from typing import List, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

_COLUMNS = ("active", "gone", "padding", "came", "known", "taken", "stale", "loss")
_HEADER = ("turn", "ended", "updating", "update_step", "joins")


class Book(NamedTuple):
  """The book as tensors: int64 vectors of length `replicas`, then int64 scalars."""

  active: tf.Tensor  # 1: has joined and takes part
  gone: tf.Tensor  # 1: took part and does not any more; who has not joined yet is waited for
  padding: tf.Tensor  # 1: has no data left, and counts as one that has come with nothing
  came: tf.Tensor  # 1: its gradient for this turn is there
  known: tf.Tensor  # the turn that it computes for
  taken: tf.Tensor  # how many of its gradients were in an update
  stale: tf.Tensor  # how many of its gradients came too late
  loss: tf.Tensor  # the bits of a float64: that of its last gradient's batch
  turn: tf.Tensor  # counted from 0
  ended: tf.Tensor  # 1: no update comes any more
  updating: tf.Tensor  # 1: an update has begun and is not yet complete
  update_step: tf.Tensor  # the global step after the last update
  joins: tf.Tensor  # how often a replica has joined


class BookView(NamedTuple):
  """The book as of one moment, in Python, without the losses."""

  active: List[bool]
  gone: List[bool]
  padding: List[bool]
  came: List[bool]
  known: List[int]
  taken: List[int]
  stale: List[int]
  turn: int
  ended: bool
  updating: bool
  update_step: int
  joins: int


def empty(replicas: int) -> np.ndarray:
  """The table of a book in which nobody takes part."""
  return np.zeros([replicas + 1, len(_COLUMNS)], np.int64)


def unpack(table: tf.Tensor) -> Book:
  """Takes the table apart: a row for each replica, then one for what concerns all."""
  columns = tf.unstack(table[:-1], axis=1)
  header = tf.unstack(table[-1])[:len(_HEADER)]
  return Book(*columns, *header)


def pack(book: Book) -> tf.Tensor:
  """The table again."""
  count = len(_COLUMNS)
  rows = tf.stack(book[:count], axis=1)
  zeros = [tf.zeros([], tf.int64)] * (count - len(_HEADER))
  return tf.concat([rows, tf.stack(list(book[count:]) + zeros)[tf.newaxis]], axis=0)


def view(table: np.ndarray) -> BookView:
  """The table as values of Python."""
  active, gone, padding, came, known, taken, stale, _ = table[:-1].T.tolist()
  turn, ended, updating, update_step, joins = table[-1].tolist()[:len(_HEADER)]
  yes = [[one == 1 for one in column] for column in (active, gone, padding, came)]
  return BookView(*yes, known, taken, stale, turn, bool(ended), bool(updating), update_step, joins)
