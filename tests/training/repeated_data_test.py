"""Data that begin again: what is kept for a new session, and inputs that cannot begin again."""
from __future__ import annotations

import types

import pytest
import tensorflow.compat.v1 as tf

from tf1ps import SyncReplicasOptimizer
from tf1ps.checkpoint import InputPositions
from tf1ps.replication import view_rounds
from tf1ps.training import repeated_data


class Loop(object):
  """One of two replicas, with a hook; it plays the part of the session's lifecycle."""

  def __init__(self, batches):
    data = tf.data.Dataset.range(batches)
    self.batch = tf.data.make_initializable_iterator(data).get_next()
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    self.optimizer = SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 2, replica_index=0, on_uneven="repeat")
    self.optimizer.minimize(w, step)
    self.hook = repeated_data.RepeatedData(self.optimizer)
    self.positions = InputPositions(0, 2, 4, step)
    self.hook.follow(self.positions)
    task = types.SimpleNamespace(name="/job:worker/task:0")
    self.lifecycle = types.SimpleNamespace(
      sessions=1, tracker=types.SimpleNamespace(own_steps=0),
      membership=types.SimpleNamespace(cluster=types.SimpleNamespace(task=task)))
    self.hook.on_join(self.lifecycle)

  def open(self, session):
    """What the hooks do in a new session."""
    iterator = self.batch.op.inputs[0].op
    session.run([op for op in tf.get_default_graph().get_operations()
                 if op.type == "MakeIterator" and op.inputs[1].op is iterator])
    session.run(self.optimizer.local_step_init_op)
    for hook in (self.positions, self.hook):
      hook.after_create_session(session, None)

  def run_pass(self, session):
    """Draws batches to the end of the data; returns what the hook says then, and the batches."""
    drawn = []
    with pytest.raises(tf.errors.OutOfRangeError) as raised:
      while True:
        self.positions.add(1)
        drawn.append(session.run(self.batch))
        self.lifecycle.tracker.own_steps += 1
    inside = types.SimpleNamespace(call_inside=lambda function: function(session))
    self.positions.on_end_of_data(inside, raised.value)
    return self.hook.begin_next_pass(inside, raised.value), drawn


def went_through(session, loop):
  return view_rounds(session.run(loop.optimizer.look)).went_through


@pytest.mark.slow
def test_a_restored_position_knows_of_the_passes_before():
  with tf.Graph().as_default(), tf.Session() as session:
    loop = Loop(3)
    session.run(tf.global_variables_initializer())
    loop.open(session)
    assert loop.run_pass(session) == (True, [0, 1, 2])
    loop.positions.add(1)
    assert session.run(loop.batch) == 0
    loop.positions.store(session)
    session.run(loop.optimizer.rounds.clear())  # as a chief that restores a checkpoint
    assert went_through(session, loop) == [0, 0]
    loop.open(session)
    assert (loop.positions.passes, went_through(session, loop)) == (1, [1, 0])
    assert loop.run_pass(session) == (True, [1, 2])


@pytest.mark.slow
def test_a_pass_without_a_batch_is_an_error_and_no_endless_loop():
  with tf.Graph().as_default(), tf.Session() as session:
    loop = Loop(0)
    session.run(tf.global_variables_initializer())
    loop.open(session)
    assert loop.run_pass(session) == (True, [])  # the session may go on at the end of the data
    with pytest.raises(RuntimeError, match="started again and gave no batch"):
      loop.run_pass(session)


def fed():
  data = tf.data.Dataset.range(tf.placeholder(tf.int64, []))
  return tf.data.make_initializable_iterator(data).get_next()


@pytest.mark.parametrize("make, text", [
  (lambda: tf.data.make_one_shot_iterator(tf.data.Dataset.range(3)).get_next(),
   "Replace make_one_shot_iterator"),
  (lambda: tf.train.input_producer(tf.range(3)).dequeue(), "its queue runner has closed"),
  (lambda: tf.placeholder(tf.int64, []), "initialised without a feed"), (fed, "without a feed")])
def test_an_input_that_cannot_begin_again_is_refused(make, text):
  with tf.Graph().as_default():
    make()
    with pytest.raises(ValueError, match="under --on_uneven=repeat .*%s" % text):
      repeated_data.RepeatedData(None)
