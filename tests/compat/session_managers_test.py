from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.compat import operations_of


def test_the_operations_of_a_manager():
  with tf.Graph().as_default():
    local, ready, early = tf.no_op(), tf.constant(["a"]), tf.constant(["b"])
    manager = tf.train.SessionManager(
      local_init_op=local, ready_op=ready, ready_for_local_init_op=early)
    assert operations_of(manager) == (local, ready, early)
    assert operations_of(tf.train.SessionManager()) == (None, None, None)
