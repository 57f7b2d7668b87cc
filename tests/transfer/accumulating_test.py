from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import steps
from tf1ps.transfer import accumulating, packed_optimizer, unrolling

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

SIZES = [4, 2, 4, 4, 4, 2, 4, 4]  # of the batches; three make a gradient, and two are left


def batches():
  random = np.random.RandomState(1)
  for size in SIZES:
    yield (random.rand(size, 3).astype(np.float32), random.randint(0, 5, [size]).astype(np.int64),
           random.rand(size).astype(np.float32))


def merged(count):
  """The same records in batches of so many of the above."""
  all_of = list(batches())
  for i in range(0, len(all_of), count):
    yield tuple(np.concatenate(parts) for parts in zip(*all_of[i:i + count]))


def build(generate, jobs=None, is_ref=False):
  setter = tf.train.replica_device_setter(worker_device=steps.WORKER, cluster=jobs) if jobs else ""
  with tf.device(setter):
    with tf.device(steps.WORKER if jobs else ""):
      iterator = tf.data.make_initializable_iterator(tf.data.Dataset.from_generator(
        generate, (tf.float32, tf.int64, tf.float32), ([None, 3], [None], [None])))
      x, ids, y = iterator.get_next()
    with tf.variable_scope("", use_resource=not is_ref):
      global_step = tf.train.get_or_create_global_step()
      w = tf.get_variable("w", [3, 1], initializer=tf.ones_initializer())
      table = tf.get_variable("table", [5, 1], initializer=tf.zeros_initializer())
      unused = tf.get_variable("unused", [2], initializer=tf.zeros_initializer())
      found = tf.matmul(x, w) + tf.gather(table, ids)
      loss = tf.reduce_mean(tf.square(found[:, 0] - y))
      optimizer = tf.train.AdagradOptimizer(0.5)
      pairs = optimizer.compute_gradients(loss, [w, table, unused])
      size = tf.shape(y)[0]
  return optimizer, pairs, loss, size, global_step, [w, table], iterator.initializer


def plain(jobs, target):
  with tf.Graph().as_default():
    optimizer, pairs, loss, _, global_step, variables, start = build(lambda: merged(3), jobs)
    train_op = optimizer.apply_gradients(pairs, global_step)
    with tf.Session(target) as session:
      session.run([tf.global_variables_initializer(), start])
      losses = [session.run([train_op, loss])[1] for _ in range(3)]
      return losses, session.run(variables)


@pytest.fixture(scope="module")
def cluster(forks):
  with steps.cluster(forks, 2) as found:
    yield found


@pytest.mark.slow
@pytest.mark.parametrize("is_ref", [False, True])
@pytest.mark.parametrize("is_unrolled", [False, True])
def test_batches_of_any_size_equal_one_large_batch(cluster, is_ref, is_unrolled):
  jobs, target = cluster
  losses, values = plain(jobs, target)
  with tf.Graph().as_default():
    optimizer, pairs, loss, size, global_step, variables, start = build(batches, jobs, is_ref)
    step = accumulating.Accumulated(pairs, loss, size, 3)
    assert isinstance(step.grads_and_vars[1][0], tf.IndexedSlices)
    assert step.grads_and_vars[2][0] is None
    with tf.device(steps.WORKER):
      train_op = optimizer.apply_gradients(step.grads_and_vars, global_step)
    rest = step.remainder(train_op)
    unrolled = unrolling.Unrolled(train_op, 2, step.loss, step.batch_size)
    with tf.Session(target) as session:
      session.run([tf.global_variables_initializer(), start])
      if is_unrolled:
        found, sizes = unrolled.run(session, [unrolled.losses, unrolled.batch_sizes])
        found, sizes = found.tolist(), sizes.tolist()
      else:
        both = [session.run([train_op, step.loss, step.batch_size])[1:] for _ in range(2)]
        found, sizes = [list(each) for each in zip(*both)]
      assert sizes == [10, 10]
      assert session.run(rest.pending) == 0
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(train_op)
      assert session.run(rest.pending) == 2
      _, last, size = session.run([rest.train_op, rest.loss, rest.batch_size])
      assert size == 8 and session.run(rest.pending) == 0
      np.testing.assert_allclose(found + [last], losses, rtol=1e-6)
      for value, expected in zip(session.run(variables), values):
        np.testing.assert_allclose(value, expected, rtol=1e-5)
      assert session.run(global_step) == 3
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(train_op)
      assert session.run(rest.pending) == 0


@pytest.mark.parametrize("fetched", ["train_op", "loss"])
def test_what_was_pushed_is_not_pushed_again(fetched):
  """Whatever of the step the loop fetches."""
  with tf.Graph().as_default():
    optimizer, pairs, loss, size, global_step, _, start = build(
      lambda: (batch for batch, _ in zip(batches(), range(6))))
    step = accumulating.Accumulated(pairs, loss, size, 3)
    train_op = optimizer.apply_gradients(step.grads_and_vars, global_step)
    rest = step.remainder(train_op)
    fetches = [train_op] + ([step.loss] if fetched == "loss" else [])
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), start])
      for _ in range(2):
        session.run(fetches)
        assert session.run(rest.pending) == 0
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(fetches)
      assert session.run(rest.pending) == 0


def test_the_size_of_a_batch_may_be_a_number():
  with tf.Graph().as_default():
    optimizer, pairs, loss, _, global_step, _, start = build(batches)
    step = accumulating.Accumulated(pairs, loss, 4, 3)
    train_op = optimizer.apply_gradients(step.grads_and_vars, global_step)
    rest = step.remainder(train_op)
    unrolled = unrolling.Unrolled(train_op, 2, step.loss, 12)
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), start])
      assert unrolled.run(session, unrolled.batch_sizes).tolist() == [12, 12]
      with pytest.raises(tf.errors.OutOfRangeError) as caught:
        unrolled.run(session)
      assert caught.value.done == unrolling.Done(0, 0, 0)
      assert session.run([rest.train_op, rest.batch_size])[1] == 8


def test_a_loop_in_each_batch_counts_down(monkeypatch):
  monkeypatch.undo()  # with TensorFlow's optimizer, which may drop such a loop
  with tf.Graph().as_default():
    x = tf.data.make_one_shot_iterator(tf.data.Dataset.range(1, 7)).get_next()
    w = tf.get_variable("w", [], initializer=tf.ones_initializer(), use_resource=True)
    _, total = tf.while_loop(lambda i, _: i > 0, lambda i, t: (i - 1, t + w.read_value()),
                             [tf.cast(x, tf.int32), 0.0])
    step = accumulating.Accumulated([(total, w)], total, 1, 3)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      assert [session.run([step.loss, step.grads_and_vars[0][0]]) for _ in range(2)] == [
        [2, 2], [5, 5]]


def test_a_weighted_sum_above_float16_has_a_mean():
  """A gradient counts as often as its batch has examples, so that any large batch overflowed."""
  with tf.Graph().as_default():
    w = tf.get_variable("w", [2], tf.float16, tf.zeros_initializer(), use_resource=True)
    x = tf.data.make_one_shot_iterator(tf.data.Dataset.range(8)).get_next()
    loss = tf.reduce_sum(w) * tf.cast(1000 + x, tf.float16)
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    step = accumulating.Accumulated(optimizer.compute_gradients(loss, [w]), loss, 100, 2)
    train_op = optimizer.apply_gradients(step.grads_and_vars)
    with tf.Session() as session:
      session.run(w.initializer)
      session.run(train_op)
      assert session.run(w).tolist() == [-1000.5, -1000.5]


def test_what_is_no_number_of_batches_is_refused():
  with tf.Graph().as_default():
    with pytest.raises(ValueError, match="batches must be a number, 1 or more, got 0"):
      accumulating.Accumulated([], tf.constant(1.0), tf.constant(2), 0)


@pytest.mark.parametrize("is_packed", [False, True])
def test_update_ops_see_the_first_batch_alone(is_packed):
  """What is made behind them, such as a constant of the clipping, is no part of a batch."""
  with tf.Graph().as_default():
    optimizer, pairs, loss, size, global_step, _, start = build(
      lambda: (batch for batch, _ in zip(batches(), range(4))))
    if is_packed:
      optimizer = packed_optimizer.PackedOptimizer(optimizer)
    x = tf.get_default_graph().get_tensor_by_name("IteratorGetNext:0")
    mean = tf.get_variable("mean", [3], trainable=False)
    update = mean.assign(tf.reduce_mean(x, 0))
    step = accumulating.Accumulated(pairs, loss, size, 3)
    with tf.control_dependencies([update]):
      gradients, variables = zip(*step.grads_and_vars)
      gradients, _ = tf.clip_by_global_norm(gradients, 0.1)
      train_op = optimizer.apply_gradients(zip(gradients, variables), global_step)
    rest = step.remainder(train_op)
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), start])
      session.run(train_op)
      seen = session.run(mean)
      np.testing.assert_allclose(seen, next(batches())[0].mean(0), rtol=1e-6)
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(train_op)
      assert session.run([rest.train_op, rest.batch_size, global_step])[1] == SIZES[3]
      assert session.run(global_step) == 2


def test_an_update_that_computes_with_the_first_batch_is_refused():
  with tf.Graph().as_default():
    optimizer, pairs, loss, size, global_step, _, _ = build(batches)
    factor = tf.multiply(loss, 2.0, name="factor")
    step = accumulating.Accumulated(pairs, loss, size, 3)
    train_op = optimizer.apply_gradients(
      [(factor * gradient, each) for gradient, each in step.grads_and_vars[:1]], global_step)
    with pytest.raises(ValueError, match="mul.* needs factor of the first batch,"):
      step.remainder(train_op)


@pytest.mark.parametrize("shape, default, is_batch", [
  ([None, 3], None, True), (None, None, True), ([None, 3], "drawn", True),
  ([None, 3], "constant", False), ([], None, False)])
def test_a_batch_that_is_fed_is_refused(shape, default, is_batch):
  """All batches of a run would be the same one. A number, such as a dropout rate, may be fed."""
  with tf.Graph().as_default():
    optimizer, _, loss, size, global_step, variables, _ = build(batches)
    x = tf.get_default_graph().get_tensor_by_name("IteratorGetNext:0")
    if default:
      fed = tf.placeholder_with_default(x if default == "drawn" else tf.ones([1, 3]), shape, "fed")
    else:
      fed = tf.placeholder(tf.float32, shape, "fed")
    loss = tf.reduce_mean(tf.matmul(fed * x, variables[0])) + loss
    pairs = optimizer.compute_gradients(loss, variables)
    train_op = optimizer.apply_gradients(pairs, global_step)
    assert accumulating.Accumulated(pairs, loss, size, 1).grads_and_vars
    for several in (lambda: accumulating.Accumulated(pairs, loss, size, 2),
                    lambda: unrolling.Unrolled(train_op, 2, loss, size)):
      if is_batch:
        with pytest.raises(ValueError, match="the batch is fed to fed, .* Draw batches from"):
          several()
      else:
        assert several()


def test_the_remainder_draws_random_numbers_of_its_own():
  with tf.Graph().as_default():
    tf.set_random_seed(1)
    optimizer, pairs, loss, size, global_step, _, start = build(batches)
    step = accumulating.Accumulated(pairs, loss, size, 3)
    with tf.control_dependencies([step.loss]):
      noise = tf.random.uniform([])
    with tf.control_dependencies([noise]):
      train_op = optimizer.apply_gradients(step.grads_and_vars, global_step)
    rest = step.remainder(train_op, noise)
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), start])
      drawn = [session.run([train_op, noise])[1] for _ in range(2)]
      with pytest.raises(tf.errors.OutOfRangeError):
        session.run(train_op)
      drawn.append(session.run([rest.train_op, rest.fetches])[1])
  assert len(set(drawn)) == 3
