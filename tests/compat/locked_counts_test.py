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


def test_floats_keep_the_choice_of_their_optimizer():
  with tf.Graph().as_default() as graph:
    w = tf.get_variable("w", initializer=1.0, use_resource=False)
    step = tf.get_variable("step", initializer=tf.constant(0, tf.int64), use_resource=False)
    tf.train.GradientDescentOptimizer(0.1).minimize(w * w, global_step=step)
    tf.assign_add(w, 1.0)
    lock_counts(graph)
    locks = {op.inputs[0].op.name: op.get_attr("use_locking")
             for op in graph.get_operations() if op.type == "AssignAdd"}
    assert locks == {"w": False, "step": True}
