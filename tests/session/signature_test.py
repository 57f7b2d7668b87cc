from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Task
from tf1ps.session import signature

WORKER = Task("worker", 1, "127.0.0.1:1")
W = ["w:0", "(2, 3)", "float32", "/job:ps/task:0", "resource"]
B = ["b:0", "(3,)", "int64", "/job:ps/task:1", "ref"]
FLAG = ["--replication=between_graph", "", "", "", "flag"]


def test_lists_the_shared_variables_by_name():
  with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
      tf.get_variable("w", [2, 3], use_resource=True)
    with tf.device("/job:ps/task:1/device:CPU:0"):
      tf.get_variable("b", [3], tf.int64, tf.zeros_initializer(), use_resource=False)
    with tf.device("/job:worker/task:1"):
      tf.get_variable("mine", [4])
    with tf.device("/job:worker/task:0"):
      tf.get_variable("theirs", [4], use_resource=True)
    tf.get_variable("anywhere", [], use_resource=True)
    tf.get_local_variable("local", [4])
    assert signature.signature(WORKER) == [
      ["anywhere:0", "()", "float32", "", "resource"], B,
      ["theirs:0", "(4,)", "float32", "/job:worker/task:0", "resource"], W]


def test_only_the_given_variables():
  with tf.Graph().as_default():
    tf.get_variable("v", [1], use_resource=True)
    w = tf.get_variable("w", [1], use_resource=True)
    assert [row[0] for row in signature.signature(WORKER, variables=[w])] == ["w:0"]


def test_the_jobs_container_holds_what_is_shared():
  with tf.Graph().as_default():
    with tf.device("/job:worker/task:1"), tf.container("mine"):
      tf.get_variable("mine", [1], use_resource=True)
    with tf.device("/job:ps/task:0"), tf.container("job"):
      tf.get_variable("w", [1], use_resource=True)
      tf.get_variable("r", [1], use_resource=False)
    signature.check_container(WORKER, "job")
    with pytest.raises(ValueError, match=(
        r"variable w:0 is in container 'job', but the job's container is '': .*"
        r"Server\(..., container='job'\)\), .* `with tf.container\(''\):`")):
      signature.check_container(WORKER, "")
    with tf.device("/job:ps/task:0"):
      late = tf.get_variable("late", [1], use_resource=True)
    with pytest.raises(ValueError, match="variable late:0 is in container ''.* is 'job'"):
      signature.check_container(WORKER, "job")
    signature.check_container(WORKER, "", [late])


def test_equal_graphs_differ_in_nothing():
  # What a chief wrote has travelled through JSON: rows are lists.
  signature.compare([W, B], [list(B), list(W)], "/job:worker/task:1", "/job:worker/task:0")


@pytest.mark.parametrize("mine, chiefs, text", [
  ([W, B], [W], r"variable b:0 \(ref int64\(3,\) on /job:ps/task:1\) is in this graph and not in "
   "the chief's"),
  ([FLAG, W], [FLAG, W, B], r"variable b:0 \(ref int64\(3,\) on /job:ps/task:1\) is in the chief's "
   "graph and not in this graph"),
  ([W], [["w:0", "(2, 4)", *W[2:]]], r"variable w:0 is resource float32\(2, 3\) on /job:ps/task:0 "
   r"here and resource float32\(2, 4\) on /job:ps/task:0 in the chief's graph"),
  ([W], [["w:0", "(2, 3)", "float64", *W[3:]]], "float32.* here and resource float64"),
  ([W], [[*W[:3], "/job:ps/task:1", W[4]]], "ps/task:0 here and .*ps/task:1 in"),
  ([W], [[*W[:4], "ref"]], "resource float32.* here and ref float32"),
  ([W], [[*W[:3], "", W[4]]], r"resource float32\(2, 3\) in the chief's graph"),
])
def test_a_difference_is_named(mine, chiefs, text):
  with pytest.raises(signature.GraphMismatchError, match=(
      "the graph of /job:worker/task:1 differs from that of /job:worker/task:0, the chief: .*"
      + text)):
    signature.compare(mine, chiefs, "/job:worker/task:1", "/job:worker/task:0")


def test_the_chief_of_a_program_without_flags_may_have_more(caplog):
  with caplog.at_level("INFO", "tf1ps"):
    signature.compare([W], [W, B], "/job:worker/task:1", "/job:worker/task:0")
  assert "/job:worker/task:0, the chief, has 1 further variables, such as b:0" in caplog.text


def test_five_differences_are_named_and_the_others_counted():
  rows = [["v%d:0" % i, *W[1:]] for i in range(7)]
  with pytest.raises(signature.GraphMismatchError) as caught:
    signature.compare(rows, [], "me", "chief")
  assert all("v%d:0" % i in str(caught.value) for i in range(5))
  assert "v5:0" not in str(caught.value) and str(caught.value).endswith("; and 2 more")
