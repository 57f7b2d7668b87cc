"""Batch normalization of replicas, in a process of its own: its layers come from `tf1ps.v1`."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.training import shared_statistics


def check_all():
  """Checks each kind of variable with vectors and with images, which TensorFlow fuses."""
  for kind in ["resource", "ref"]:
    for shape in ([6, 3], [2, 4, 4, 3]):
      _check(kind, shape)


def _check(kind, shape):
  import tf1ps.v1  # it changes Keras for the whole process

  data = np.random.RandomState(0).normal(2.0, 3.0, shape).astype(np.float32)
  axes = tuple(range(len(shape) - 1))
  with tf.Graph().as_default(), tf.variable_scope(
      tf.get_variable_scope(), use_resource=kind == "resource"):
    tf1ps.v1.layers.batch_normalization(tf.constant(data), momentum=0.9, training=True, name="bn")
    counter = tf.get_variable("counter", [], initializer=tf.zeros_initializer())
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, counter.assign_add(1.0))
    updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
    assert shared_statistics.share_moves(updates, 1) == updates
    parts = shared_statistics.share_moves(updates, 4)
    values = {variable.op.name: variable for variable in tf.global_variables()}
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(parts)
      found = session.run(values)
  assert found["counter"] == 1.0
  assert found["bn/moving_mean"] == pytest.approx(0.1 / 4 * data.mean(axes), rel=1e-4)
  moved = (found["bn/moving_variance"] - 1) / (0.1 / 4) + 1
  assert moved == pytest.approx(data.var(axes), rel=0.3)  # fused, it is the unbiased variance
