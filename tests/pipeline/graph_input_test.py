from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.pipeline.bad_records import BadRecords
from tf1ps.pipeline.graph_input import input_of, use_bad_records


def test_each_graph_has_a_policy_and_fails_by_default():
  first, second = tf.Graph(), tf.Graph()
  use_bad_records(BadRecords("skip", 0.5), first)
  assert input_of(first).bad_records.skips
  assert not input_of(second).bad_records.skips
  with first.as_default():
    assert input_of() is input_of(first)
