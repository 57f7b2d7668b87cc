from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.pipeline import python_batches


def made(elements, dtypes, shapes, size, drop_remainder=False):
  parts = python_batches.components(dtypes, shapes, size is not None)
  return [[array.tolist() for array in batch] for batch in python_batches.batches(
    elements, dtypes, parts, size, drop_remainder)]


def test_elements_are_stacked_and_the_last_batch_is_what_is_left():
  elements = [{"x": [i, i], "y": "n%d" % i} for i in range(3)]
  settings = {"x": tf.float32, "y": tf.string}, {"x": [2], "y": []}
  assert made(elements, *settings, size=2) == [
    [[[0.0, 0.0], [1.0, 1.0]], ["n0", "n1"]], [[[2.0, 2.0]], ["n2"]]]
  assert len(made(elements, *settings, size=2, drop_remainder=True)) == 1


def test_unknown_dimensions_are_padded():
  elements = [([[1, 2]], ["a"]), ([[3], [4]], ["b", "c"])]
  assert made(elements, (tf.int32, tf.string), ([None, None], [None]), 2) == [
    [[[[1, 2], [0, 0]], [[3, 0], [4, 0]]], [["a", b""], ["b", "c"]]]]


def test_whole_batches_stay_as_they_are():
  assert made([[1, 2], [3]], tf.int64, None, None) == [[[1, 2]], [[3]]]


@pytest.mark.parametrize("element, message", [
    (([1, 2, 3], 0), r"element 1 of the generator must have the shape \(2,?\), got \(3,\)"),
    (([1.5, 2.5], 0), "element 1 of the generator must be int32, got .*1.5.*float64"),
    ((["a", "b"], 0), "element 1 of the generator must be int32, got"),
    ([[1, 2]], "element 1 of the generator must be a tuple of 2, got"),
    (7, "element 1 of the generator must be a tuple of 2, got 7"),
])
def test_an_element_that_does_not_fit_is_named(element, message):
  good = ([1, 2], 0)
  with pytest.raises(ValueError, match=message):
    made([good, element], (tf.int32, tf.float32), ([2], []), 2)


@pytest.mark.parametrize("dtypes, shapes, message", [
    (tf.int32, None, "the number of dimensions of each shape must be known; got shapes None"),
    ((tf.int32, tf.int32), ([2],), r"shapes must be a tuple of 2, got \(\[2\],\)"),
    ({"x": tf.int32}, {"y": []}, r"shapes must be a dict of \['x'\]"),
])
def test_shapes_that_do_not_fit(dtypes, shapes, message):
  with pytest.raises(ValueError, match=message):
    python_batches.components(dtypes, shapes, True)


def test_numbers_keep_their_kind_as_in_a_feed():
  assert made([1, np.float64(2.0)], tf.float32, [], 2) == [[[1.0, 2.0]]]
