"""The parts of a table: a variable of rows, or a partitioned variable with its rows divided.

A partitioner of `tf.get_variable` along axis 0 gives each part consecutive rows. TensorFlow's
lookups take any list for parts of equal standing: with partition_strategy="mod", their default,
they read other rows than those of the ids, and of a table that is partitioned along axis 1 they
return rows of a part of the width; neither with an error. So the parts are looked at first.
"""

from __future__ import annotations

from typing import List, NamedTuple

import tensorflow.compat.v1 as tf


class TablePart(NamedTuple):
  """A variable that holds consecutive rows of a table."""

  variable: tf.Variable
  first: int  # the id of its first row
  rows: int  # how many it holds


def parts_of_table(table) -> List[TablePart]:
  """The parts of a table, in the order of their rows.

  Args:
    table: a variable of fully known shape [rows, ...], ref or resource; or a partitioned variable
      as `tf.get_variable` with a partitioner returns it.

  Returns:
    A list of `Part`; one for a variable.

  Raises:
    TypeError: another thing, such as a list of shards, which does not tell how it was divided.
    ValueError: a table that is partitioned along another axis than 0, or has no rows.
  """
  is_partitioned = hasattr(table, "as_tensor") and hasattr(table, "__iter__")
  if not is_partitioned and not hasattr(table, "initializer"):
    raise TypeError(
      "a table must be a variable, or the partitioned variable that tf.get_variable returned, got "
      "%r: a list of shards does not tell which rows each holds" % (table,))
  shape = table.get_shape()
  if shape.rank is None or shape.rank < 1 or not shape.is_fully_defined():
    raise ValueError("the table %s must have rows and a fully known shape, got %s" % (
      table.name, shape))
  if not is_partitioned:
    return [TablePart(table, 0, shape.as_list()[0])]
  parts, first = [], 0
  for variable in table:
    own = variable.get_shape().as_list()
    if own[1:] != shape.as_list()[1:]:
      raise ValueError(
        "the table %s of shape %s is partitioned along another axis than 0: its part %s has the "
        "shape %s. A lookup needs whole rows: use a partitioner with axis=0" % (
          table.name, shape, variable.op.name, own))
    parts.append(TablePart(variable, first, own[0]))
    first += own[0]
  return parts
