from __future__ import annotations

import logging
import threading

import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.graph import building


def is_silent():
  return not any("building the graph" in thread.name for thread in threading.enumerate())


def test_lines_say_how_far_a_graph_is_until_it_is_final(set_timing, caplog):
  caplog.set_level(logging.INFO, "tf1ps")
  set_timing(building, reminder_interval=0.01)
  with tf.Graph().as_default() as graph, building.says_building(graph):
    for line in ("building the graph, 1 variables, ", "building the graph, 2 variables, "):
      tf.Variable(1.0)
      harness.wait_until(lambda line=line: line in caplog.text)
    graph.finalize()
    harness.wait_until(is_silent)


def test_the_lines_end_with_the_building(set_timing, caplog):
  caplog.set_level(logging.INFO, "tf1ps")
  with tf.Graph().as_default() as graph, building.says_building(graph):
    assert not is_silent()
  harness.wait_until(is_silent)
  assert not caplog.messages
