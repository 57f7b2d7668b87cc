from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import lock_counts
from tf1ps.session import initialise

RUNS = 150


@pytest.mark.parametrize("use_resource", [True, False])
def test_no_addition_of_two_workers_is_lost(use_resource):
  server = tf.train.Server.create_local_server()
  with tf.Graph().as_default():
    # One count loses an addition in every few thousand; of so many, each pair of runs loses some.
    counts = tf.get_variable("counts", [200000], tf.int64, tf.zeros_initializer(),
                             use_resource=use_resource)
    add = tf.assign_add(counts, tf.ones_like(counts)).op
    initialise.finalize(tf.train.Scaffold())  # as each training session does
    with tf.Session(server.target) as one, tf.Session(server.target) as other:
      one.run(counts.initializer)

      def work(session):
        for _ in range(RUNS):
          session.run(add)

      threads = [threading.Thread(target=work, args=(session,)) for session in (one, other)]
      for thread in threads:
        thread.start()
      for thread in threads:
        thread.join()
      assert set(one.run(counts)) == {2 * RUNS}


def test_only_counts_are_locked_and_a_count_may_be_a_float():
  with tf.Graph().as_default() as graph:
    weights = tf.get_variable("weights", initializer=[1.0], use_resource=False)
    counts = [tf.get_variable(name, initializer=tf.constant(value), use_resource=False)
              for name, value in (("ints", [0]), ("step", 0.0))]
    for variable in [weights, *counts]:
      tf.assign_add(variable, tf.ones_like(variable))
    lock_counts(graph)
    locks = {op.inputs[0].op.name: op.get_attr("use_locking")
             for op in graph.get_operations() if op.type == "AssignAdd"}
    assert locks == {"weights": False, "ints": True, "step": True}
