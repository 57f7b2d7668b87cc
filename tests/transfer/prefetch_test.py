from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tf1ps.transfer import fetch, prefetch


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_a_step_computes_on_the_values_of_the_one_before(cluster, use_resource):
  with cluster.graph(), tf.device(graphs.setter()):
    w, b = graphs.variable("w", [], use_resource), graphs.variable("b", [2], use_resource)
    y = w + tf.reduce_sum(b) - 0.01
    train = tf.train.GradientDescentOptimizer(1.0).minimize(-w)
    ahead = prefetch.Prefetch()
    fetch.fetch_variables(hold=ahead.hold)
    train = ahead.with_put(train)
    init = tf.global_variables_initializer()
    for _ in range(2):  # of the second session's values none are those of the first one
      with cluster.session() as session:
        session.run(init)
        ahead.start(session)
        found = [session.run([y, train])[0] for _ in range(5)]
      # What arrived during step n may be from before its update or after it, but not older.
      assert found[0] == 0.0
      for step, value in enumerate(found):
        assert step - 1 <= round(float(value)) <= step
    with cluster.session() as session:
      assert session.run(w) == 5.0


def test_the_hook_begins_each_session(cluster):
  with cluster.graph(), tf.device(graphs.setter()):
    w = graphs.variable("w", [3], True)
    y = tf.reduce_sum(w) + 1.0
    ahead = prefetch.Prefetch()
    fetch.fetch_variables(hold=ahead.hold)
    step = ahead.with_put(y.op)
    hook = ahead.make_session_run_hook()
    scaffold = tf.train.Scaffold(init_op=tf.global_variables_initializer())
    creator = tf.train.ChiefSessionCreator(
      scaffold, cluster.target(0), cluster.config("/job:ps", "/job:worker/task:0"))
    with tf.train.MonitoredSession(creator, hooks=[hook]) as session:
      for _ in range(3):
        np.testing.assert_allclose(session.run([y, step])[0], 1.03, rtol=1e-6)
