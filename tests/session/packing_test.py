from __future__ import annotations

import logging

import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tf1ps.cluster.description import Cluster
from tf1ps.session import packing

JOBS = {"ps": {0: "a:1"}, "worker": {0: "c:1", 1: "d:1"}}


@pytest.fixture
def graph():
  """Two variables on the ps, and their update on the worker."""
  with tf.Graph().as_default() as graph, tf.device(graphs.setter()):
    a, b = graphs.variable("a", [3], True), graphs.variable("b", [3], True)
    tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.square(a * b)))
    yield graph


def pack(graph, caplog, pack_bytes=None, jobs=None):
  """Packs it; returns (whether the graph has grown, the lines of the log)."""
  before = len(graph.get_operations())
  caplog.clear()
  with caplog.at_level(logging.INFO, "tf1ps"):
    packing.pack_once(graph, Cluster(jobs or JOBS, "worker", 0), pack_bytes)
  return len(graph.get_operations()) > before, [record.getMessage() for record in caplog.records]


def test_a_graph_is_packed_once_and_one_line_says_how(graph, caplog):
  grown, (line,) = pack(graph, caplog)
  assert grown
  assert line == ("the values of 2 variables travel in 1 messages, 2 gradients in 1 "
                  "(TF1PS_PACK_BYTES=0 sends each alone)")
  assert pack(graph, caplog) == (False, [])


@pytest.mark.parametrize("variable, argument", [("0", None), ("65536", 0)])
def test_the_environment_or_the_argument_switches_it_off(
  graph, caplog, monkeypatch, variable, argument
):
  monkeypatch.setenv("TF1PS_PACK_BYTES", variable)
  assert pack(graph, caplog, argument) == (False, [])


@pytest.mark.parametrize("variable, argument, message", [
  ("64k", None, "TF1PS_PACK_BYTES must be a number of bytes, 0 .* or more, got '64k'"),
  ("0", -1, "pack_bytes must be .*got -1")])
def test_what_is_no_number_of_bytes_is_refused(graph, caplog, monkeypatch, variable, argument,
                                               message):
  monkeypatch.setenv("TF1PS_PACK_BYTES", variable)
  with pytest.raises(ValueError, match=message):
    pack(graph, caplog, argument)


def test_without_a_ps_nothing_travels(graph, caplog):
  assert pack(graph, caplog, jobs={"worker": {0: "c:1", 1: "d:1"}}) == (False, [])


def test_a_final_graph_stays_as_it_is_and_one_line_says_why(graph, caplog):
  graph.finalize()
  assert pack(graph, caplog) == (
    False, ["the graph was final before its session, so its messages are not packed"])


def test_a_graph_that_cannot_be_packed_runs_as_it_is_and_one_line_says_why(
  graph, caplog, monkeypatch
):
  def fail(*unused):
    raise KeyError("a trap")

  monkeypatch.setattr(packing, "pack_graph", fail)
  assert pack(graph, caplog) == (
    False, ["the messages of this graph are not packed: KeyError: 'a trap'"])
