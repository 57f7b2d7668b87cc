from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import places


@pytest.mark.parametrize("source, number, told", [
  (0, 0, "a:1"), (1, 16, "b:17"), (2, 5, "c"), ((2 ** 14 - 1) * 2 ** 32 + 1, 2 ** 31 - 1,
                                              "b:2147483648")])
def test_a_place_keeps_source_and_number(source, number, told):
  with tf.Graph().as_default() as graph, tf.Session() as session:
    assert (places.add(["a", "b"]), places.add(["c"], numbered=False)) == (0, 2)
    assert places.paths(graph) == ["a", "b", "c"]
    place = places.base(tf.constant(source, tf.int64)) + number
    value, *parts = session.run([place, places.source_of(place), places.number_of(place)])
  assert parts == [source, number]
  assert places.name(graph, value) == told


def test_epochs_begin_anew_after_the_most():
  with tf.Graph().as_default(), tf.Session() as session:
    place = places.base(tf.constant(places.MOST_EPOCHS * 2 ** 32 + 1, tf.int64))
    assert session.run(places.source_of(place)) == 1


def test_too_many_files_are_refused():
  with tf.Graph().as_default(), pytest.raises(ValueError, match="262145 files are too many"):
    places.add(["a"] * (places.MOST_FILES + 1))
