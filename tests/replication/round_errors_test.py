from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import session as session_lib
from tf1ps.replication import round_errors, sync_replicas_optimizer


def client(ps, on_uneven):
  """A replica of two; returns its session, optimizer and training step."""
  with tf.Graph().as_default() as graph, tf.device(ps.name):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
    step = tf.train.get_or_create_global_step()
    optimizer = sync_replicas_optimizer.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), 2, replica_index=0, on_uneven=on_uneven)
    train = optimizer.minimize(tf.square(w - 1.0), step)
    init = tf.global_variables_initializer()
  session = session_lib.BoundedSession(
    "grpc://" + ps.address, graph, explain=round_errors.explain_round_error)
  session.run(init)
  return session, optimizer, train


@pytest.mark.slow
def test_replicas_with_different_rules_are_refused(ps):
  first, optimizer, train = client(ps, "shrink")
  first.run(optimizer.local_step_init_op)
  second, optimizer_2, _ = client(ps, "stop_all")
  with pytest.raises(round_errors.RoundRulesError, match='"shrink".* Give all of them the same'):
    second.run(optimizer_2.local_step_init_op)
  # One that was dropped joins again, by the new session that an AbortedError asks for.
  first.run(optimizer.leave_op)
  with pytest.raises(tf.errors.AbortedError, match="replica 0 has not joined. Run the hook"):
    first.run(train)
  for session in (first, second):
    session.close()


def test_other_errors_stay_as_they_are():
  earlier = "x\nRecent warning and error logs:\n  assertion failed: [tf1ps not joined: y]"
  for error in (ValueError("x"), tf.errors.InvalidArgumentError(None, None, earlier)):
    assert round_errors.explain_round_error(error) is error
  with tf.Graph().as_default(), tf.Session() as session:
    end = round_errors.raise_end([])
    with pytest.raises(tf.errors.OutOfRangeError) as caught:
      session.run(end)
  assert round_errors.is_end_of_replicas(caught.value)
  earlier = "End of sequence\nRecent warning and error logs:\n  %s" % caught.value.message
  assert not round_errors.is_end_of_replicas(tf.errors.OutOfRangeError(None, None, earlier))
