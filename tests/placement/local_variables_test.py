"""Tests of tf1ps/placement/local_variables.py; device_setter_test.py has those with a setter."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import local_variables

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
LOCAL = [tf.GraphKeys.LOCAL_VARIABLES]
WORKER = "/job:worker/task:1"


@pytest.fixture
def graph():
  """A graph of its own."""
  with tf.Graph().as_default() as g:
    yield g


def make(collections, use_resource=True):
  return tf.Variable(1.0, collections=collections, use_resource=use_resource)


def anchors(graph):
  return [op.name for op in graph.get_operations() if "local_variable_anchor" in op.name]


@KINDS
@pytest.mark.parametrize("collections, is_local", [
    (None, False),
    ([tf.GraphKeys.GLOBAL_VARIABLES], False),
    (["mine", tf.GraphKeys.GLOBAL_VARIABLES, tf.GraphKeys.LOCAL_VARIABLES], False),
    (LOCAL, True),
    ([tf.GraphKeys.LOCAL_VARIABLES, tf.GraphKeys.METRIC_VARIABLES], True),
    (("mine",), True),
    ([], True),
])
def test_local_is_what_is_not_global(graph, collections, is_local, use_resource):
  seen = []

  def creator(next_creator, **kwargs):
    seen.append(local_variables.being_made())
    return next_creator(**kwargs)

  with tf.variable_creator_scope(creator):
    local_variables.install(graph, WORKER)
    make(collections, use_resource)
    # The scope that is held open must end before the caller's.
    graph._tf1ps_local_variables._entered.scope.close()
  assert seen == [is_local]
  assert not local_variables.being_made()


def test_a_global_variable_made_on_the_way_to_a_local_one_is_global(graph):
  seen = []

  def creator(next_creator, **kwargs):
    if kwargs["name"] == "outer":
      tf.Variable(1.0, name="inner")
    seen.append((kwargs["name"], local_variables.being_made()))
    return next_creator(**kwargs)

  with tf.variable_creator_scope(creator):
    local_variables.install(graph, WORKER)
    tf.Variable(1.0, collections=LOCAL, name="outer")
    graph._tf1ps_local_variables._entered.scope.close()
  assert seen == [("inner", False), ("outer", True)]


def test_a_failed_variable_leaves_nothing_behind(graph):
  local_variables.install(graph, WORKER)
  with pytest.raises(ValueError):
    tf.Variable(None, collections=LOCAL)
  assert not local_variables.being_made()
  with pytest.raises(ValueError, match="collections"):
    tf.Variable(1.0, collections="mine")


@KINDS
def test_without_a_job_the_worker_device_counts(graph, use_resource):
  local_variables.install(graph, WORKER)
  assert make(LOCAL, use_resource).device == WORKER
  assert make(None, use_resource).device == ""
  with tf.device("/cpu:0"):
    assert make(LOCAL, use_resource).device == WORKER + "/device:CPU:0"
  with tf.device("/task:3"):
    assert make(LOCAL, use_resource).device == "/job:worker/task:3"


@KINDS
def test_a_job_that_the_caller_names_counts(graph, use_resource):
  local_variables.install(graph, WORKER)
  with tf.device("/job:ps/task:0"):
    assert make([], use_resource).device == "/job:ps/task:0"
  with tf.device("/job:chief"):
    assert make(LOCAL, use_resource).device == "/job:chief"


def test_the_last_worker_device_counts_unless_one_is_known(graph):
  local_variables.install(graph)
  assert make(LOCAL).device == ""
  local_variables.install(graph, "/job:worker/task:0")
  assert make(LOCAL).device == "/job:worker/task:0"
  local_variables.install(graph, WORKER, replace=True)
  assert make(LOCAL).device == WORKER
  local_variables.install(graph, "/job:worker/task:0")
  assert make(LOCAL).device == WORKER


def test_the_creator_is_entered_once(graph):
  for task in range(3):
    local_variables.install(graph, "/job:worker/task:%d" % task, replace=True)
  assert make(LOCAL).device == "/job:worker/task:2"
  assert anchors(graph) == ["local_variable_anchor"]


def test_installing_again_does_not_disturb_scopes_of_the_caller(graph):
  local_variables.install(graph, WORKER)
  with tf.variable_creator_scope(lambda next_creator, **kwargs: next_creator(**kwargs)):
    local_variables.install(graph, WORKER)
    assert make(LOCAL).device == WORKER
  assert make(LOCAL).device == WORKER


def test_another_graph_knows_nothing(graph):
  local_variables.install(graph, WORKER)
  with tf.Graph().as_default() as other:
    assert make(LOCAL).device == ""
    assert anchors(other) == []
  other = tf.Graph()
  local_variables.install(other, "/job:worker/task:0")
  assert make(LOCAL).device == WORKER
  with other.as_default():
    assert make(LOCAL).device == "/job:worker/task:0"


def test_each_thread_that_builds_the_graph_is_served(graph):
  local_variables.install(graph, WORKER)
  devices = []

  def build():
    with graph.as_default():
      local_variables.install(graph)
      devices.append(make(LOCAL).device)

  thread = threading.Thread(target=build)
  thread.start()
  thread.join(60)
  assert devices == [WORKER]


def test_the_anchor_is_free_of_what_surrounds_it(graph):
  local_variables.install(graph, WORKER)
  with tf.control_dependencies([tf.constant(1.0)]), tf.name_scope("scope"):
    make(LOCAL)
  anchor = graph.get_operation_by_name("scope/local_variable_anchor")
  assert list(anchor.control_inputs) == []


@pytest.mark.slow
@pytest.mark.parametrize("in_thread", [False, True])
def test_goes_with_its_graph_and_silently(in_thread, monkeypatch, capfd):
  complaints = []
  if hasattr(sys, "unraisablehook"):
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
  graph = tf.Graph()
  local_variables.install(graph, WORKER)
  with graph.as_default():
    make(LOCAL)
  gone = weakref.ref(graph)
  del graph
  if in_thread:
    thread = threading.Thread(target=gc.collect)
    thread.start()
    thread.join(60)
  else:
    gc.collect()
  assert gone() is None
  assert complaints == []
  assert "variable_creator_scope" not in capfd.readouterr().err


def test_the_graph_of_a_function_is_left_alone(graph):
  seen = []

  def double(x):
    seen.append(tf.get_default_graph())
    local_variables.install(tf.get_default_graph(), WORKER)
    return 2 * x

  tf.data.Dataset.from_tensors(1.0).map(double)
  assert seen[0] is not graph
  assert not hasattr(seen[0], "_tf1ps_local_variables")


def test_eager_variables_are_left_alone():
  if not tf.executing_eagerly():
    pytest.skip("eager execution is off")
  local_variables.install(tf.get_default_graph(), WORKER)
  try:
    assert "worker" not in tf.Variable(1.0, collections=LOCAL).device
  finally:
    tf.reset_default_graph()
