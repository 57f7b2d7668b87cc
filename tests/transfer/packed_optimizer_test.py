"""A training script with and without packing: the same losses, the same checkpoint."""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.transfer import packed_optimizer

STEPS = 6
CASES = {
  "classic": None,
  "packed": dict(),
  "some alone": dict(pack_bytes=100),
  "none packed": dict(pack_bytes=0),
}


def loss_of(use_resource):
  """A deep model with an embedding, batch normalisation, and a partitioned variable."""
  random = np.random.RandomState(3)
  ids = tf.constant(random.randint(0, 20, [8, 3]))
  table = graphs.variable("table", [20, 4], use_resource)
  x = tf.reduce_sum(tf.nn.embedding_lookup(table, ids), 1)
  for layer in range(3):
    w = tf.get_variable("w%d" % layer, [4, 4], use_resource=use_resource,
                        initializer=tf.glorot_uniform_initializer(seed=layer),
                        regularizer=lambda w: 0.1 * tf.nn.l2_loss(w))
    b = graphs.variable("b%d" % layer, [4], use_resource)
    x = tf.nn.relu(tf.matmul(x, w) + b)
  part = tf.get_variable("part", [4, 2], use_resource=use_resource,
                         initializer=tf.ones_initializer(),
                         partitioner=tf.fixed_size_partitioner(2))
  scale = graphs.variable("scale", [], use_resource)
  mean = tf.get_variable("mean", [2], trainable=False, initializer=tf.zeros_initializer(),
                         use_resource=use_resource)
  y = tf.matmul(x, tf.convert_to_tensor(part)) + scale
  moved = 0.9 * mean.read_value() + 0.1 * tf.reduce_mean(y, 0)
  tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign(moved))
  return tf.reduce_mean(tf.square(y - 1.0)) + tf.add_n(
    tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))


def train(cluster, use_resource, options, path, clip):
  """Trains STEPS steps; returns the losses, the values, the variables, and what was received."""
  with cluster.graph(), tf.device(graphs.setter(2)):
    step = tf.train.get_or_create_global_step()
    loss = loss_of(use_resource)
    optimizer = tf.train.MomentumOptimizer(0.02, 0.9)
    if options is not None:
      optimizer = packed_optimizer.PackedOptimizer(optimizer, **options)
    pairs = optimizer.compute_gradients(loss)
    if clip:
      clipped, _ = tf.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
      pairs = list(zip(clipped, [variable for _, variable in pairs]))
    averages = tf.train.ExponentialMovingAverage(0.9)
    averaged = tf.trainable_variables() if use_resource else []  # of ref ones in a branch of 2.x
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
      update = optimizer.apply_gradients(pairs, step)
    with tf.control_dependencies([update]):
      train_op = tf.group(averages.apply(averaged))
    saver, init = tf.train.Saver(), tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      losses = [session.run([loss, train_op])[0] for _ in range(STEPS)]
      saver.save(session, path)
      received = graphs.received(session, [loss, train_op])
      saver.restore(session, path)
      values = {variable.op.name: session.run(variable) for variable in tf.global_variables()}
  return losses, values, received


@pytest.mark.slow
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("clip", [pytest.param(False, marks=pytest.mark.slow), True])
def test_training_is_the_same(cluster, tmp_path, use_resource, clip):
  found = {case: train(cluster, use_resource, options, str(tmp_path / case), clip)
           for case, options in CASES.items()}
  losses, values, _ = found["classic"]
  assert len(set(losses)) == STEPS
  for case in CASES:
    np.testing.assert_allclose(found[case][0], losses, rtol=1e-6, err_msg=case)
    assert sorted(found[case][1]) == sorted(values)
    for name, value in values.items():
      np.testing.assert_allclose(found[case][1][name], value, rtol=1e-5, atol=1e-7, err_msg=name)
  saved = [tf.train.list_variables(str(tmp_path / case)) for case in CASES]
  assert all(one == saved[0] for one in saved)
  counts = {case: {task: len(names) for task, names in received.items()}
            for case, (_, _, received) in found.items()}
  assert counts["packed"][WORKER] < counts["classic"][WORKER]
  for ps in PS:
    assert counts["packed"][ps] < counts["classic"][ps], counts


def test_bad_arguments_are_refused():
  inner = tf.train.GradientDescentOptimizer(1.0)
  with pytest.raises(ValueError, match="pack_bytes must be"):
    packed_optimizer.PackedOptimizer(inner, pack_bytes=-1)
  with pytest.raises(ValueError, match="wire_dtype must be"):
    packed_optimizer.PackedOptimizer(inner, wire_dtype="int4")
  with pytest.raises(TypeError, match="opt must be a tf.train.Optimizer, got 'adam'"):
    packed_optimizer.PackedOptimizer("adam")


class IgnoresStep(tf.train.GradientDescentOptimizer):
  """As BERT's AdamWeightDecayOptimizer does."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    return super().apply_gradients(grads_and_vars, name=name)


class DecidesItself(tf.train.GradientDescentOptimizer):
  """As an optimizer with a loss scale: it makes the update, and counts it, in a branch."""

  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    pairs = list(grads_and_vars)

    def apply():
      done = super(DecidesItself, self).apply_gradients(pairs, global_step)
      with tf.control_dependencies([done]):
        return tf.constant(True)

    return tf.cond(pairs[0][0] < 10.0, apply, lambda: tf.constant(False)).op


@pytest.mark.parametrize("use_resource, control_flow_v2", [
  (False, False), (True, False), (True, True)])
@pytest.mark.parametrize("is_in_branch", [False, True])
@pytest.mark.parametrize("kind", [tf.train.GradientDescentOptimizer, IgnoresStep, DecidesItself])
def test_each_update_is_counted_once(kind, is_in_branch, use_resource, control_flow_v2):
  was = tf.control_flow_v2_enabled()
  (tf.enable_control_flow_v2 if control_flow_v2 else tf.disable_control_flow_v2)()
  try:
    with tf.Graph().as_default(), tf.Session() as session:
      w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=use_resource)
      step = tf.get_variable("step", [], tf.int64, tf.zeros_initializer(), trainable=False,
                             use_resource=use_resource)
      gradient = tf.constant(-1.0)

      def apply():
        done = packed_optimizer.apply_and_count(kind(1.0), [(gradient, w)], step)
        with tf.control_dependencies([done]):
          return tf.constant(True)

      train = tf.cond(tf.zeros([]) < 1.0, apply, lambda: tf.constant(False)) if (
        is_in_branch) else apply()
      session.run(tf.global_variables_initializer())
      for _ in range(2):
        session.run(train)
      assert session.run([w, step]) == [2.0, 2]
  finally:
    (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()
