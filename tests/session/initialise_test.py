from __future__ import annotations

import os

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.checkpoint import checkpoints
from tf1ps.session import initialise


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def variable(value=1.0, name="v", **kwargs):
  return tf.get_variable(name, [], initializer=tf.constant_initializer(value), use_resource=True,
                         **kwargs)


def test_without_a_checkpoint_the_init_op_and_then_the_init_fn():
  v, fed = variable(), tf.placeholder(tf.float32, [])
  add = v.assign_add(10.0)
  scaffold = tf.train.Scaffold(
    init_op=v.assign(fed).op, init_feed_dict={fed: 5.0},
    init_fn=lambda scaffold, session: session.run(add.op)).finalize()
  with tf.Session() as session:
    initialise.restore_or_initialise(session, scaffold, None)
    assert session.run(v) == 15.0


def test_with_a_checkpoint_neither(tmp_path):
  called = []
  v = variable(7.0)
  to_seven = v.initializer
  scaffold = tf.train.Scaffold(
    init_op=v.assign(1.0).op, init_fn=lambda scaffold, session: called.append("init_fn")).finalize()
  with tf.Session() as session:
    session.run(to_seven)
    path = scaffold.saver.save(session, os.path.join(str(tmp_path), "model"))
  with tf.Session() as session:
    assert initialise.restore_or_initialise(session, scaffold, str(tmp_path)) == path
    assert (session.run(v), called) == (7.0, [])


@pytest.mark.parametrize("damage, text", [
  (lambda shard: shard.write_bytes(shard.read_bytes()[:-1]), "is damaged in .*data-00000-of-00001"),
  (lambda shard: shard.write_bytes(b"\0" * len(shard.read_bytes())), "is damaged in .*data-00000"),
  (lambda shard: shard.unlink(), r"is not complete: .*model.ckpt.data-\* is missing"),
  (lambda shard: variable(name="new"), r"lacks the model's variable 'new' of shape \(\): "),
], ids=["truncated", "overwritten", "missing", "of another graph"])
def test_a_checkpoint_that_cannot_be_restored_is_told_with_what_is_wrong(tmp_path, damage, text):
  path = str(tmp_path / "model.ckpt")
  variable()
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver().save(session, path)
  damage(tmp_path / "model.ckpt.data-00000-of-00001")
  scaffold = tf.train.Scaffold(saver=tf.train.Saver()).finalize()
  with tf.Session() as session:
    with pytest.raises(checkpoints.CheckpointError, match="(?s)model.ckpt " + text):
      initialise.restore_or_initialise(session, scaffold, str(tmp_path))


def test_local_variables_and_tables_are_initialised():
  variable()
  local = tf.get_local_variable("local", [], initializer=tf.constant_initializer(3.0))
  scaffold = tf.train.Scaffold().finalize()
  with tf.Session() as session:
    initialise.restore_or_initialise(session, scaffold, None)
    initialise.initialise_locally(session, scaffold)
    assert session.run(local) == 3.0


def test_what_nothing_initialises_is_named():
  v = variable()
  for i in range(6):
    variable(name="forgotten%d" % i)
  scaffold = tf.train.Scaffold(init_op=v.initializer).finalize()
  with tf.Session() as session:
    initialise.restore_or_initialise(session, scaffold, None)
    with pytest.raises(initialise.SessionCreationError, match=(
        "^Init operations did not make model ready. Variables not initialized: forgotten0, "
        "forgotten1, forgotten2, forgotten3, forgotten4 and 1 more. The init_op")):
      initialise.initialise_locally(session, scaffold)


def test_a_scaffold_without_a_ready_op_is_ready():
  assert initialise.missing_variables(None, None) == []
  scaffold = tf.train.Scaffold(ready_op=tf.no_op()).finalize()  # an operation answers None
  with tf.Session() as session:
    assert initialise.missing_variables(session, scaffold.ready_op) == []
