"""What the hook of synchronous replicas does at their end."""
from __future__ import annotations

import concurrent.futures
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import LimitExceeded
from tf1ps.replication import rounds, session_ops, sync_hook, sync_replicas_optimizer

LIMIT = 1.0  # seconds, for the lock


class SlowOptimizer(tf.train.GradientDescentOptimizer):
  """One whose updates end when the test lets them."""

  go_on = threading.Event()

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    (gradient, variable), = grads_and_vars

    def slow(value):
      assert self.go_on.wait(60)
      return value

    later = tf.numpy_function(slow, [gradient], gradient.dtype)
    later.set_shape(gradient.shape)
    return super().apply_gradients([(later, variable)], global_step, name)


@pytest.mark.slow
def test_the_last_update_of_a_replica_that_leaves_takes_as_long_as_it_needs(
    set_timing, monkeypatch):
  set_timing(sync_hook, lock_limit=LIMIT)
  monkeypatch.setattr(sync_hook, "_limit", lambda: tf.RunOptions(timeout_in_ms=60000))
  monkeypatch.setattr(SlowOptimizer, "go_on", threading.Event())
  call_within = sync_hook.call_within

  def call_and_go_on(*args, extend, **kwargs):
    """At each limit the update ends if it has begun; if not, the machine is busy."""
    def may_wait():
      if extend():
        SlowOptimizer.go_on.set()
      return True

    return call_within(*args, extend=may_wait, **kwargs)

  monkeypatch.setattr(sync_hook, "call_within", call_and_go_on)
  with tf.Graph().as_default() as graph, tf.Session() as session:
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    stays, leaves = [sync_replicas_optimizer.SyncReplicasOptimizer(
      SlowOptimizer(1.0), 2, replica_index=i, on_uneven="shrink") for i in range(2)]
    train, _ = stays.minimize(-w, step), leaves.minimize(-w, step)
    hook = leaves.make_session_run_hook(False)
    closed, opened = threading.Event(), threading.Event()

    def stay():
      closed.set()
      return opened.wait(60)

    hold = leaves.rounds._shared.step(lambda: [tf.numpy_function(stay, [], tf.bool)])
    session.run(tf.global_variables_initializer())
    session.run(stays.chief_init_op)
    hook.after_create_session(session, tf.train.Coordinator())
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
      waits = threads.submit(
        session.run, train, options=tf.RunOptions(timeout_in_ms=60000))
      harness.wait_until(
        lambda: rounds.view_rounds(session.run(stays.look)).arrived[0], what="the other replica")
      hook.leave(session)  # which finishes the round
      waits.result(60)
      assert session.run([w, step]) == [1.0, 1]
      assert session.run(session_ops.partial_updates(graph)) == [False, False]
      assert (hook.state.taken, hook.state.left) == ([1, 0], [0, 1])
      assert SlowOptimizer.go_on.is_set()  # it took longer than the limit
      monkeypatch.setattr(sync_hook, "call_within", call_within)
      held = threads.submit(session.run, hold)
      assert closed.wait(60)
      try:
        with pytest.raises(LimitExceeded, match="the lock of the rounds did not end within 1 s"):
          hook.end_all(session)
      finally:
        opened.set()
        held.result(60)


def test_the_next_session_of_a_chief_that_has_left_takes_back_no_end():
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    chief, other = [sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 2, replica_index=i, on_uneven="pad")
                    for i in range(2)]
    for optimizer in (chief, other):
      optimizer.minimize(-w, step)
    hook = chief.make_session_run_hook(True)
    session.run(tf.global_variables_initializer())
    session.run(other.local_step_init_op)
    hook.after_create_session(session, tf.train.Coordinator())
    session.run(other.leave_op)
    hook.leave(session)
    hook.end_all(session)
    hook.after_create_session(session, tf.train.Coordinator())
    state = rounds.view_rounds(session.run(chief.look))
    assert (state.ended, state.left) == (1, [1, 1])


@pytest.mark.slow
def test_without_a_master_no_other_replica_is_awaited():
  with tf.Graph().as_default(), tf.Session() as session:
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 2, replica_index=0)
    optimizer.minimize(-w, tf.train.get_or_create_global_step())
    with pytest.raises(ValueError, match="every update needs 2 replicas, and a session without a"):
      optimizer.make_session_run_hook(True).after_create_session(session, tf.train.Coordinator())
