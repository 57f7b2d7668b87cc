"""The state of synchronous rounds: its columns, and an update that is interrupted."""
from __future__ import annotations

import concurrent.futures
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.replication import round_errors, rounds, session_ops, sync_replicas_optimizer, uneven

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")


def test_each_column_of_the_state_has_a_place_of_its_own():
  columns = rounds.RoundState._field_defaults
  state = rounds.RoundState(**{
    name: 10 * i + np.arange(2 if default.ndim else 1, dtype=np.int64).reshape(
      [2] if default.ndim else []) for i, (name, default) in enumerate(columns.items())})
  with tf.Graph().as_default(), tf.Session() as session:
    vector = rounds._pack(rounds.RoundState(*[tf.constant(value) for value in state]))
    assert vector.shape.as_list() == [rounds._size(2)]
    found, packed = session.run([rounds._unpack(vector, 2), vector])
  for name, value, right in zip(state._fields, found, state):
    np.testing.assert_array_equal(value, right, err_msg=name)
  view = rounds.view_rounds(packed)
  assert view == rounds.RoundState(*[value.tolist() for value in state])
  assert isinstance(view.active, list) and isinstance(view.round, int)


@pytest.mark.slow
def test_a_partial_update_is_refused_until_the_state_is_cleared():
  with tf.Graph().as_default() as graph, tf.Session() as session:
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 1, replica_index=0)
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    train = optimizer.minimize(w, tf.train.get_or_create_global_step())
    shared = optimizer.rounds._shared
    begun = shared.change(lambda state: rounds._pack(state._replace(updating=1)))
    session.run(tf.global_variables_initializer())
    session.run(optimizer.chief_init_op)
    session.run(train)
    assert session.run(session_ops.partial_updates(graph)) == [False]
    session.run(begun)  # as of a run that ends before it has made the update
    assert session.run(session_ops.partial_updates(graph)) == [True]
    for op in (train, optimizer.chief_init_op, optimizer.leave_op, optimizer.resend):
      with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        session.run(op)
      error = round_errors.explain_round_error(raised.value)
      assert isinstance(error, tf.errors.AbortedError)
      assert error.message.startswith("an update was interrupted: some variables have it")
    session.run(session_ops.clear_ops(graph))
    assert session.run(session_ops.partial_updates(graph)) == [False]
    view = rounds.view_rounds(session.run(optimizer.look))
    assert (view.round, view.active, view.taken, view.joins) == (2, [0], [0], 0)
    session.run(optimizer.chief_init_op)
    session.run(train)
    assert session.run(w) == -2.0


@pytest.mark.slow
def test_the_end_of_the_replicas_is_no_end_of_data():
  with tf.Graph().as_default(), tf.Session() as session:
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 1, replica_index=0)
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    train = optimizer.minimize(w, tf.train.get_or_create_global_step())
    empty = tf.queue.FIFOQueue(1, [tf.int32])
    session.run([tf.global_variables_initializer(), empty.close()])
    session.run(optimizer.chief_init_op)
    session.run(optimizer.end_op)
    session.run(optimizer.local_step_init_op, {optimizer.may_begin: 0})
    for fetch, is_end in ((train, True), (empty.dequeue(), False)):
      with pytest.raises(tf.errors.OutOfRangeError) as raised:
        session.run(fetch)
      assert round_errors.is_end_of_replicas(raised.value) is is_end
  assert not round_errors.is_end_of_replicas(ValueError("the_replicas_have_ended"))


def test_each_policy_for_uneven_data_has_one_effect():
  assert uneven.ON_UNEVEN == ("stop_all", "pad", "shrink", "repeat")
  # Leaving ends all under "repeat" too; the end of the data is no reason to leave there.
  assert [sum(policy) for policy in uneven.UNEVEN_POLICIES.values()] == [1, 1, 1, 2]


def repeating(graph, session, count=2):
  """Replicas in one graph; returns their optimizers and training steps."""
  with graph.as_default():
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    made = [sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), count, replica_index=i, on_uneven="repeat")
      for i in range(count)]
    trains = [one.minimize(w, step) for one in made]
    session.run(tf.global_variables_initializer())
    for one in made:
      session.run(one.local_step_init_op)
  return made, trains


def is_end(session, train):
  with pytest.raises(tf.errors.OutOfRangeError) as raised:
    session.run(train)
  return round_errors.is_end_of_replicas(raised.value)


@pytest.mark.slow
def test_repeated_data_end_training_when_all_replicas_went_through_theirs():
  with tf.Graph().as_default() as graph, tf.Session() as session:
    (first, second), trains = repeating(graph, session)

    def look():
      return rounds.view_rounds(session.run(first.look))

    session.run(trains)
    assert [session.run(first.finish_pass), session.run(first.finish_pass)] == [False, False]
    assert (look().went_through, look().ended) == ([1, 0], 0)
    session.run(trains)  # it takes part as before
    session.run(first.local_step_init_op)  # the mark outlasts a new session
    assert look().went_through == [1, 0]
    thread = concurrent.futures.ThreadPoolExecutor(1)
    with thread:
      waits = thread.submit(is_end, session, trains[0])
      while not look().arrived[0]:
        threading.Event().wait(0.01)
      assert session.run(second.finish_pass)
      assert waits.result(60)  # who waits gets the end
    assert is_end(session, trains[1])  # and so does who arrives later
    state = look()
    assert (state.went_through, state.ended) == ([1, 1], 1)
    assert (state.taken, state.stale) == ([2, 2], [1, 0])
    for one in (first, second):
      session.run(one.leave_op)
    for one in (first, second):  # another job
      session.run(one.local_step_init_op)
    assert (look().went_through, look().ended) == ([0, 0], 0)


@pytest.mark.slow
def test_a_pass_cannot_end_in_rounds_that_were_cleared():
  with tf.Graph().as_default() as graph, tf.Session() as session:
    (first, second), _ = repeating(graph, session)
    assert not session.run(first.finish_pass)
    session.run(session_ops.clear_ops(graph))  # the chief restored older variables
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
      session.run(second.finish_pass)
    error = round_errors.explain_round_error(raised.value)
    assert isinstance(error, tf.errors.AbortedError)
    assert rounds.view_rounds(session.run(first.look)).went_through == [0, 0]
