from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import new_graph


def names_of_layers():
  for _ in range(2):
    tf.keras.layers.Dense(1)(tf.zeros([2, 3]))
  return [variable.op.name for variable in tf.global_variables()]


def test_keras_gives_the_same_names_in_every_graph():
  with new_graph():
    first = names_of_layers()
  assert len(first) == 4
  with new_graph() as graph:
    with new_graph():  # as the chief tries the evaluation before it builds the training
      assert names_of_layers() == first
    assert tf.get_default_graph() is graph
    assert names_of_layers() == first


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="it counts names per graph")
def test_keras_3_still_counts_per_process():
  with tf.Graph().as_default():
    first = names_of_layers()
  with tf.Graph().as_default():
    assert names_of_layers() != first
