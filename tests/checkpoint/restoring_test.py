from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.training import line_program
from tf1ps.checkpoint import restoring
from tf1ps.checkpoint.checkpoints import CheckpointError


@pytest.fixture(params=["resource", "ref"])
def kind(request):
  """Runs a test in a graph of each kind of variables."""
  with tf.Graph().as_default(), tf.variable_scope(
      tf.get_variable_scope(), use_resource=request.param == "resource"):
    yield request.param


def test_values_come_from_the_checkpoint_and_the_global_step_too(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1.5, b=2.5)
  w, step = tf.get_variable("w", []), tf.train.get_or_create_global_step()
  saver = restoring.make_saver_for(path)
  with tf.Session() as session:
    restoring.restore_checkpoint(session, saver, path)
    assert session.run([w, step]) == [1.5, 7]


def test_a_global_step_that_is_not_there_is_zero(tmp_path, kind):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("w", initializer=3.)
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  w, step = tf.get_variable("w", []), tf.train.get_or_create_global_step()
  saver = restoring.make_saver_for(path)
  with tf.Session() as session:
    restoring.restore_checkpoint(session, saver, path)
    assert session.run([w, step]) == [3., 0]


def test_a_checkpoint_that_goes_between_the_check_and_the_restore(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1.5, b=2.5)
  tf.get_variable("w", [])
  saver = restoring.make_saver_for(path)
  tf.train.remove_checkpoint(path)
  expected = "is not complete: .* is missing"
  with tf.Session() as session, pytest.raises(CheckpointError, match=expected):
    restoring.restore_checkpoint(session, saver, path)


def test_a_checkpoint_that_does_not_fit_is_an_error_of_tensorflows_type(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  for name, shape, error in (("v", [], tf.errors.NotFoundError),
                             ("w", [2], tf.errors.InvalidArgumentError)):
    with tf.Graph().as_default(), tf.Session() as session:
      # Into a resource variable TensorFlow restores a value of another shape without a word.
      stock = tf.train.Saver({name: tf.get_variable("x", shape, use_resource=False)})
      with pytest.raises(error):
        stock.restore(session, path)
      with pytest.raises(CheckpointError) as raised:
        restoring.restore_checkpoint(session, stock, path)
      assert isinstance(raised.value, error) and raised.value.message == str(raised.value)


def test_parts_of_another_whole_are_an_error(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1., b=1., parts=[[1., 2.]] * 4)
  tf.get_variable("parts", [5, 2], partitioner=tf.fixed_size_partitioner(2))
  saver = restoring.make_saver_for(path)
  expected = r"has shape \(5, 2\), but shape \(4, 2\) in"
  with tf.Session() as session, pytest.raises(CheckpointError, match=expected):
    restoring.restore_checkpoint(session, saver, path)


def test_parts_are_restored_from_the_whole(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1., b=1., parts=[[1., 2.], [3., 4.]])
  parts = tf.get_variable("parts", [2, 2], partitioner=tf.fixed_size_partitioner(2))
  saver = restoring.make_saver_for(path)
  with tf.Session() as session:
    restoring.restore_checkpoint(session, saver, path)
    assert session.run(parts.as_tensor()).tolist() == [[1., 2.], [3., 4.]]


def test_any_saver_is_checked_by_the_names_that_it_restores(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1., b=1., other=[1., 2.])
  other = tf.get_variable("w", [2])  # has the name of a variable with another shape
  with tf.Session() as session:
    restoring.restore_checkpoint(session, tf.train.Saver({"other": other}), path)
    assert session.run(other).tolist() == [1., 2.]
    with pytest.raises(CheckpointError, match=r"'w' has shape \(2,\), but shape \(\) in"):
      restoring.restore_checkpoint(session, tf.train.Saver(sharded=True), path)
    with pytest.raises(CheckpointError, match="lacks the model's variable 'others' .* 'other'$"):
      restoring.restore_checkpoint(session, tf.train.Saver({"others": other}), path)


def test_the_names_of_all_variables_are_read_once(tmp_path, kind, monkeypatch):
  """Reading them for each variable takes minutes where there are thousands."""
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  tf.get_variable("w", [])
  tf.get_variable("b", [])
  reads, read = [], restoring._names_and_parts
  monkeypatch.setattr(restoring, "_names_and_parts", lambda op: reads.append(op) or read(op))
  saver = restoring.make_saver_for(path)
  with tf.Session() as session:
    restoring.restore_checkpoint(session, saver, path)
  assert len(reads) == 1


def test_a_checkpoint_by_objects_is_left_to_tensorflow(tmp_path, kind):
  values = tf.train.Checkpoint(w=tf.get_variable("v", initializer=3., use_resource=True))
  restored = tf.get_variable("w", [2])
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    path = values.save(str(tmp_path / "objects"), session)
    restoring.restore_checkpoint(session, tf.train.Saver([values.w]), path)
    with pytest.raises(CheckpointError, match="cannot be restored: "):
      restoring.restore_checkpoint(session, tf.train.Saver({"w": restored}), path)


def test_a_lost_connection_says_nothing_of_the_checkpoint(tmp_path, kind):
  class Saver(tf.train.Saver):
    def restore(self, sess, save_path):
      raise tf.errors.UnavailableError(None, None, "the ps went away")

  path = line_program.save(tmp_path, 7, w=1., b=1.)
  tf.get_variable("w", [])
  with tf.Session() as session, pytest.raises(tf.errors.UnavailableError, match="the ps went away"):
    restoring.restore_checkpoint(session, Saver(), path)


def test_a_checkpoint_may_lack_what_is_optional(tmp_path):
  path = str(tmp_path / "model")
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("v", initializer=3.0)
    tf.get_variable("other", initializer=tf.constant(["text"]))
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path)
  with tf.Graph().as_default(), tf.Session() as session:
    v = tf.get_variable("v", initializer=0.0)
    more = [tf.get_variable(name, initializer=tf.constant(value), use_resource=True)
            for name, value in (("new", "a"), ("other", "b"))]
    saver = restoring.make_saver(more)
    saver.restore(session, path)
    assert session.run([v, more]) == [3.0, [b"a", b"b"]]
    session.run(more[0].assign("c").op)
    saver.save(session, path)
    session.run(tf.global_variables_initializer())
    saver.restore(session, path)
    assert session.run([v, more]) == [3.0, [b"c", b"b"]]


def test_a_saver_of_all_variables_builds_its_operations_once():
  with tf.Graph().as_default() as graph:
    tf.get_variable("v", [])
    w = tf.get_variable("w", [])
    restoring.make_saver()
    assert count(graph, "SaveV2", "RestoreV2") == [1, 1]
    restoring.make_saver([w])
    assert count(graph, "SaveV2", "RestoreV2") == [3, 3]


def count(graph, *types):
  found = [op.type for op in graph.get_operations()]
  return [found.count(one) for one in types]


AVERAGE = "/ExponentialMovingAverage"


def save_with_averages(directory):
  """Saves variables, a table of rows 0, 1 and 2, and averages that are ten times as large."""
  with tf.Graph().as_default():
    values = {"w": [1.0, 2.0], "table": [[0.0], [1.0], [2.0]], "moving_mean": [7.0]}
    for name in ("w", "table"):
      values[name + AVERAGE] = np.array(values[name], np.float32) * 10
    for name, value in values.items():
      tf.get_variable(name, initializer=np.array(value, np.float32))
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      return tf.train.Saver().save(session, str(directory / "model.ckpt"), 0)


def test_without_training_moving_averages_take_the_place_of_variables(
    tmp_path, kind, caplog, monkeypatch):
  monkeypatch.setattr(logging.getLogger("tf1ps"), "propagate", True)
  caplog.set_level(logging.INFO, "tf1ps")
  path = save_with_averages(tmp_path)
  w = tf.get_variable("w", [2])
  table = tf.get_variable("table", [3, 1], partitioner=tf.fixed_size_partitioner(3))
  mean = tf.get_variable("moving_mean", [1], trainable=False)
  step = tf.train.get_or_create_global_step()  # which the checkpoint lacks
  values = [w, tf.convert_to_tensor(table), mean, step]
  saver = restoring.make_saver_for(path)
  with tf.Session() as session:
    restoring.restore_checkpoint(session, saver, path)
    assert [value.tolist() for value in session.run(values)] == [
      [10.0, 20.0], [[0.0], [10.0], [20.0]], [7.0], 0]
  assert caplog.messages == [
    "the checkpoints in %s have moving averages of 2 variables, which take the place of the "
    "variables here" % tmp_path]


def test_a_model_with_moving_averages_of_its_own_gets_both(tmp_path):
  path = save_with_averages(tmp_path)
  with tf.Graph().as_default():
    both = [tf.get_variable(name, [2]) for name in ("w", "w" + AVERAGE)]
    saver = restoring.make_saver_for(path)
    with tf.Session() as session:
      restoring.restore_checkpoint(session, saver, path)
      assert [one.tolist() for one in session.run(both)] == [[1.0, 2.0], [10.0, 20.0]]
