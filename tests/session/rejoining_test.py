from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import session as session_lib
from tf1ps.replication import sync_replicas_optimizer
from tf1ps.session import rejoining


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
    "grpc://" + ps.address, graph, explain=rejoining.explain)
  session.run(init)
  return session, optimizer, train


def test_replicas_that_were_told_different_rules_are_told(ps):
  first, optimizer, train = client(ps, "shrink")
  first.run(optimizer.local_step_init_op)
  second, optimizer_2, _ = client(ps, "stop_all")
  with pytest.raises(rejoining.RulesError, match='give all of them the same .*"shrink"'):
    second.run(optimizer_2.local_step_init_op)
  # One that was dropped joins again, by the new session that an AbortedError asks for.
  first.run(optimizer.leave_op)
  with pytest.raises(tf.errors.AbortedError, match="replica 0 takes no part: run the hook"):
    first.run(train)
  for session in (first, second):
    session.close()


def test_other_errors_stay_as_they_are():
  for error in (ValueError("x"), tf.errors.InvalidArgumentError(None, None, "x")):
    assert rejoining.explain(error) is error
