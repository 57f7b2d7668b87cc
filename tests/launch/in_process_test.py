"""Clusters in this process: what they train, how they fail, and what they leave."""
from __future__ import annotations

import threading
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training.local_job import line_input, line_model
from tf1ps.launch import TaskFailedError, in_process

LINE = (line_input, line_model)


@pytest.fixture(autouse=True)
def graph_mode():
  """As in tf1ps-worker, but for the tests behind this one, which share the process."""
  has_v2 = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  with tf.Graph().as_default():
    yield
  if has_v2:
    tf.enable_control_flow_v2()


@pytest.mark.slow
@pytest.mark.parametrize("options", [
  dict(examples=600), dict(steps=20, sync_replicas=True), dict(steps=20, replication="in_graph"),
  dict(examples=600, staleness_policy="max_lead:2")])
def test_three_workers_train_on_two_ps(options):
  modes = []

  def input_fn(mode, shard):
    modes.append((mode, shard.index))
    return line_input(mode, shard)

  with tf1ps.local_cluster(num_ps=2, num_workers=3) as cluster:
    outcome = cluster.train((input_fn, line_model), batch_size=20, learning_rate=0.1, **options)
  assert {index for mode, index in modes if mode == "train"} == {0, 1, 2}
  if "examples" in options or "sync_replicas" in options:
    assert outcome.global_step == (30 if "examples" in options else 20)
  assert 0 < outcome.metrics["loss"] < 9


@pytest.mark.slow
def test_the_servers_are_used_again_and_keep_no_variables():
  with tf1ps.local_cluster(1, 1) as cluster:
    cluster.train(LINE, steps=5, learning_rate=0.1)
    assert list(cluster.servers) == ["ps", "worker"]
    assert cluster.target == cluster.servers["worker"][0].target
    assert cluster.cluster.task.name == "/job:worker/task:0"
  with pytest.raises(RuntimeError, match="this cluster has ended"):
    cluster.train(LINE, steps=5)
  with tf1ps.local_cluster(1, 1) as again:
    assert again.target == cluster.target
    with tf1ps.local_cluster(1, 1) as other:
      assert other.target != again.target
    with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
      w = tf.get_variable("w", [], use_resource=True)
      known = tf.is_variable_initialized(w)
      with tf.Session(again.target) as session:
        assert not session.run(known)
    assert again.train(LINE, steps=3).steps == 3


@pytest.mark.slow
def test_data_that_end_before_the_last_step_are_a_warning(caplog):
  def input_fn(mode, shard):
    return tf.data.Dataset.from_tensor_slices(([1., 2., 3., 4.], [5., 8., 11., 14.])).batch(2)

  with tf1ps.local_cluster(1, 1) as cluster:
    outcome = cluster.train((input_fn, line_model), steps=9)
  assert outcome.global_step == 2 and outcome.warning in caplog.messages
  assert outcome.warning.startswith("the training data ended after 2 of --steps=9. Let input_fn ")


@pytest.mark.slow
def test_a_chief_of_its_own_trains_too():
  with tf1ps.local_cluster(1, 1, chief=True) as cluster:
    assert cluster.chief is cluster.servers["chief"][0]
    outcome = cluster.train(LINE, examples=256)
  assert (outcome.examples, outcome.global_step) == (128, 8)


@pytest.mark.slow
def test_a_worker_that_fails_is_named_and_the_others_stop():
  def input_fn(mode, shard):
    if mode == "train" and shard.index == 1:
      raise KeyError("no data today")
    return line_input(mode, shard)

  with tf1ps.local_cluster(2, 3) as cluster:
    with pytest.raises(TaskFailedError) as raised:
      cluster.train((input_fn, line_model), steps=10**9)
    assert str(raised.value) == "/job:worker/task:1 failed: KeyError: 'no data today'"
    assert raised.value.task == "/job:worker/task:1"
    assert isinstance(raised.value.__cause__, KeyError)
    assert cluster.is_idle
    assert cluster.train(LINE, examples=96).global_step == 3


@pytest.mark.slow
def test_an_exception_of_the_caller_stops_the_workers(monkeypatch):
  """As Ctrl-C does in a notebook."""
  began = threading.Event()

  def input_fn(mode, shard):
    batches = line_input(mode, shard)
    if mode == "train":
      with tf.control_dependencies([tf.py_func(began.set, [], [])]):
        return [tf.identity(each) for each in batches]
    return batches

  class Thread(threading.Thread):
    def join(self, timeout=None):
      if began.is_set() and not raised:
        raised.append(True)
        raise KeyboardInterrupt
      super().join(timeout)

  raised = []
  monkeypatch.setattr(in_process.threading, "Thread", Thread)
  with tf1ps.local_cluster(1, 1) as cluster:
    with pytest.raises(KeyboardInterrupt):
      cluster.train((input_fn, line_model), steps=10**9)
    assert raised and cluster.is_idle


@pytest.mark.parametrize("numbers, text", [
  ((0, 1), "local_cluster: num_ps must be an integer of 1 or more, got 0"),
  ((1, "2"), "local_cluster: num_workers must be an integer of 1 or more, got '2'")])
def test_a_cluster_that_cannot_be_is_refused(numbers, text):
  with pytest.raises(tf1ps.Error) as raised:
    with tf1ps.local_cluster(*numbers):
      pass
  assert str(raised.value) == text


@pytest.mark.parametrize("program, options, text", [
  (LINE, dict(), "the job has no end: give --steps, --epochs or --examples"),
  (LINE, dict(step=3), 'train has no option step: did you mean "steps"?'),
  (LINE, dict(steps="3"), "train: an option has a value of a wrong type: "),
  (LINE, dict(steps=3, replication="all_reduce"),
   "train: replication=all_reduce needs a process for each worker: use tf1ps.run_local"),
  (LINE, dict(steps=3, num_clones=2),
   "train: num_clones=2 needs a process for each worker: use tf1ps.run_local"),
  (3, dict(steps=3), "program must be a module, its name, the path of a .py file, or the pair "
   r"\(input_fn, model_fn\), got 3"),
  ((line_input, 3), dict(steps=3), r"the program has no function model_fn\(features, labels, mode"),
  (types.ModuleType("empty"), dict(steps=3), r"empty has no function input_fn\(mode, shard\)")])
def test_a_training_that_cannot_work_is_refused(program, options, text):
  with tf1ps.local_cluster(1, 1) as cluster:
    with pytest.raises(ValueError, match=text):
      cluster.train(program, **options)


def test_eager_execution_is_refused():
  found = []

  def enter():  # no other thread is in the graph of the fixture
    if not tf.executing_eagerly():  # TensorFlow 1
      found.append("executes eagerly here: call tf.compat.v1.disable_v2_behavior()")
      return
    try:
      in_process.local_cluster().__enter__()
    except ValueError as error:
      found.append(str(error))

  thread = threading.Thread(target=enter)
  thread.start()
  thread.join()
  assert "executes eagerly here: call tf.compat.v1.disable_v2_behavior()" in found[0]


def test_numpy_data_of_a_notebook():
  x = np.linspace(-1, 1, 100).astype(np.float32)

  def input_fn(mode, shard):
    return shard.dataset(tf.data.Dataset.from_tensor_slices((x, 3 * x + 2))).batch(shard.batch_size)

  with tf1ps.local_cluster(1, 2) as cluster:
    outcome = cluster.train((input_fn, line_model), epochs=40, batch_size=10, learning_rate=0.1)
  assert outcome.metrics["loss"] < 0.01
