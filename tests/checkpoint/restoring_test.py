from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.training import line_program
from tf1ps.checkpoint import restoring
from tf1ps.checkpoint.checkpoints import CheckpointError
from tf1ps.program import variable_kind


@pytest.fixture(params=variable_kind.KINDS)
def kind(request):
  """Runs a test in a graph of each kind of variables."""
  with tf.Graph().as_default(), variable_kind.kind_scope(request.param):
    yield request.param


def test_values_come_from_the_checkpoint_and_the_global_step_too(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1.5, b=2.5)
  w, step = tf.get_variable("w", []), tf.train.get_or_create_global_step()
  restore = restoring.restore_from(path)
  with tf.Session() as session:
    restore(session)
    assert session.run([w, step]) == [1.5, 7]


def test_a_global_step_that_is_not_there_is_zero(tmp_path, kind):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("w", initializer=3.)
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  w, step = tf.get_variable("w", []), tf.train.get_or_create_global_step()
  restore = restoring.restore_from(path)
  with tf.Session() as session:
    restore(session)
    assert session.run([w, step]) == [3., 0]


def test_a_checkpoint_that_goes_between_the_check_and_the_restore(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1.5, b=2.5)
  tf.get_variable("w", [])
  restore = restoring.restore_from(path)
  tf.train.remove_checkpoint(path)
  with tf.Session() as session, pytest.raises(CheckpointError, match="is not whole: .* is missing"):
    restore(session)


def test_parts_of_another_whole_are_an_error(tmp_path, kind):
  path = line_program.save(tmp_path, 7, w=1., b=1., parts=[[1., 2.]] * 4)
  tf.get_variable("parts", [5, 2], partitioner=tf.fixed_size_partitioner(2))
  restore = restoring.restore_from(path)
  with tf.Session() as session, pytest.raises(CheckpointError, match="-7 cannot be restored: "):
    restore(session)
