"""Where a record stands: the name of its file and its number there, told only when it is asked for.

A record that travels through a graph carries one integer, its place:

  bits 49 to 62   the epoch, where files are claimed one by one; else 0
  bits 31 to 48   the file's index in a table that the graph has in Python
  bits 0 to 30    the record's number in the file, from 0

Whoever reads files puts their names into the table.
"""

from __future__ import annotations

from typing import List, NamedTuple

import tensorflow.compat.v1 as tf

MOST_FILES = 2 ** 18
MOST_EPOCHS = 2 ** 14  # after as many they are counted from 0 again
_NUMBER_BITS = 31
_EPOCH_BITS = 49
CLAIM_BITS = 32  # those of a claim, which is epoch * 2**32 + index of the file
_ATTRIBUTE = "_tf1ps_places"


class _File(NamedTuple):
  path: str
  numbered: bool  # whether it holds records that have numbers; else it is the record


def add(paths: List[str], numbered: bool = True) -> int:
  """Puts files into the table of the default graph.

  Args:
    paths: their names.
    numbered: whether they hold records that have numbers.

  Returns:
    The index of the first one; the others follow.

  Raises:
    ValueError: they are too many.
  """
  graph = tf.get_default_graph()
  table = getattr(graph, _ATTRIBUTE, [])
  if len(table) + len(paths) > MOST_FILES:
    raise ValueError("%d files are too many, at most %d can be read: put the records into fewer" % (
      len(table) + len(paths), MOST_FILES))
  setattr(graph, _ATTRIBUTE, table + [_File(path, numbered) for path in paths])
  return len(table)


def paths(graph: tf.Graph) -> List[str]:
  """All files in the table of a graph."""
  return [file.path for file in getattr(graph, _ATTRIBUTE, [])]


def base(source):
  """The place of number 0 in a source: epoch * 2**32 + index, int64 tensors."""
  index = tf.bitwise.bitwise_and(source, _long(2 ** CLAIM_BITS - 1))
  epoch = tf.math.floormod(tf.bitwise.right_shift(source, _long(CLAIM_BITS)), _long(MOST_EPOCHS))
  return (tf.bitwise.left_shift(epoch, _long(_EPOCH_BITS))
          + tf.bitwise.left_shift(index, _long(_NUMBER_BITS)))


def source_of(place):
  """The source of places, with the epoch as far as it is counted; int64 tensors."""
  epoch = tf.bitwise.right_shift(place, _long(_EPOCH_BITS))
  index = tf.bitwise.bitwise_and(
    tf.bitwise.right_shift(place, _long(_NUMBER_BITS)), _long(MOST_FILES - 1))
  return tf.bitwise.left_shift(epoch, _long(CLAIM_BITS)) + index


def number_of(place):
  """The number of records in their files, from their places; int64 tensors."""
  return tf.bitwise.bitwise_and(place, _long(2 ** _NUMBER_BITS - 1))


def name(graph: tf.Graph, place: int) -> str:
  """Tells where a record stands.

  Args:
    graph: the one that reads it.
    place: the place that it came with.

  Returns:
    Such as "data/a.csv:17", counted from 1 and with header lines; the file alone where it is the
    record.
  """
  file = getattr(graph, _ATTRIBUTE)[(int(place) >> _NUMBER_BITS) % MOST_FILES]
  number = int(place) % 2 ** _NUMBER_BITS
  return "%s:%d" % (file.path, number + 1) if file.numbered else file.path


def _long(value):
  return tf.constant(value, tf.int64)
