from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import table_parts


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("parts, found", [
  (None, [(0, 7)]), (1, [(0, 7)]), (3, [(0, 3), (3, 2), (5, 2)]), (9, [(i, 1) for i in range(7)])])
def test_parts_and_their_rows(use_resource, parts, found):
  table = tf.get_variable("table", [7, 2], use_resource=use_resource,
                          partitioner=parts and tf.fixed_size_partitioner(parts))
  named = table_parts.parts_of_table(table)
  assert [each[1:] for each in named] == found
  assert [each.variable.op.name for each in named] == (
    ["table/part_%d" % i for i in range(len(found))] if parts else ["table"])


def test_columns_are_refused():
  table = tf.get_variable("table", [7, 4], partitioner=tf.fixed_size_partitioner(2, axis=1))
  with pytest.raises(ValueError, match=r"the table table of shape \(7, 4\) is partitioned along "
                     r"another axis than 0: its part table/part_0 has the shape \[7, 2\]"):
    table_parts.parts_of_table(table)


def test_what_is_no_table_is_refused():
  table = tf.get_variable("table", [7, 4])
  for wrong in ([table, table], tf.zeros([7, 4]), 5):
    with pytest.raises(TypeError, match="a table must be a variable, or the partitioned variable"):
      table_parts.parts_of_table(wrong)
  for name, shape in (("scalar", []), ("open", None)):
    with pytest.raises(ValueError, match="table %s:0 must have rows and a fully known" % name):
      table_parts.parts_of_table(tf.get_variable(
        name, initializer=tf.placeholder_with_default(1., shape), validate_shape=False))
