from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import final_graphs


@pytest.mark.parametrize("is_final", [True, False])
def test_a_graph_is_changeable_for_a_moment(is_final):
  with tf.Graph().as_default() as graph:
    if is_final:
      graph.finalize()
    with final_graphs.changeable(graph):
      tf.constant(1)
    assert graph.finalized == is_final


def test_a_failure_leaves_it_final():
  with tf.Graph().as_default() as graph:
    graph.finalize()
    with pytest.raises(KeyError), final_graphs.changeable(graph):
      raise KeyError
    with pytest.raises(RuntimeError, match="finalized"):
      tf.constant(1)
