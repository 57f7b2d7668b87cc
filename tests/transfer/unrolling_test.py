from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import steps
from tf1ps.graph import needed_ops
from tf1ps.transfer import prefetch, unrolling

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")


@pytest.fixture(scope="module", params=[1, 2])
def cluster(request, forks):
  with steps.cluster(forks, request.param) as found:
    yield found


@pytest.mark.slow
@pytest.mark.parametrize("is_ref", [False, True])
@pytest.mark.parametrize("embedding", [False, True])
def test_losses_and_variables_are_those_of_single_steps(cluster, is_ref, embedding, monkeypatch):
  """Eleven batches in runs of four: the third run ends after three, and none is lost."""
  monkeypatch.setattr(unrolling, "_EARLY_BYTES", 0)  # the variables are small
  jobs, target = cluster
  losses, values = steps.classic(jobs, target, is_ref=is_ref, embedding=embedding)
  assert len(losses) == 11
  with tf.Graph().as_default():
    step = steps.build(jobs, is_ref=is_ref, embedding=embedding)
    unrolled = unrolling.Unrolled(step.train_op, 4, step.loss, step.size)
    with tf.Session(target) as session:
      for _ in range(3):  # what depends on who is faster shows in one of these
        session.run(step.init)
        found = [unrolled.run(session, unrolled.losses) for _ in range(2)]
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
          unrolled.run(session)
        assert caught.value.done == unrolling.Done(steps=3, examples=30, late=0)
        assert np.concatenate(found).tolist() == losses[:8]
        assert session.run(step.global_step) == 11
        for value, expected in zip(session.run(step.variables), values):
          np.testing.assert_array_equal(value, expected)
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
          unrolled.run(session)
        assert caught.value.done == unrolling.Done(0, 0, 0)


@pytest.mark.slow
def test_single_steps_and_runs_of_several_take_turns(cluster):
  jobs, target = cluster
  losses, _ = steps.classic(jobs, target)
  with tf.Graph().as_default():
    step = steps.build(jobs)
    unrolled = unrolling.Unrolled(step.train_op, 3, step.loss, step.size)
    with tf.Session(target) as session:
      session.run(step.init)
      found = [session.run([step.train_op, step.loss])[1]]
      sizes, several = unrolled.run(session, [unrolled.batch_sizes, unrolled.losses])
      assert sizes.tolist() == [10] * 3
      found += several.tolist() + [session.run([step.train_op, step.loss])[1]]
  assert found == losses[:5]


@pytest.mark.parametrize("v2", [False, True])
def test_updates_that_may_not_be_made_and_loops(v2, monkeypatch):
  """x goes 0, 1, 2, ...; w counts the even ones, and the loop adds 3 times w to s."""
  monkeypatch.undo()  # with TensorFlow's optimizer, which may drop a copy's loop that counts down
  (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
  try:
    with tf.Graph().as_default():
      x = tf.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next()
      w = tf.get_variable("w", [], tf.int64, tf.zeros_initializer(), use_resource=True)
      s = tf.get_variable("s", [], tf.int64, tf.zeros_initializer(), use_resource=True)
      one = tf.constant(1, tf.int64)
      with tf.control_dependencies([x]):
        taken = tf.cond(tf.equal(x % 2, 0), lambda: w.assign_add(one) > 0,
                        lambda: tf.constant(False))
      with tf.control_dependencies([taken]):
        _, total = tf.while_loop(lambda i, _: i > 0, lambda i, t: (i - 1, t + w.read_value()),
                                 [tf.constant(3), tf.constant(0, tf.int64)])
      train_op = s.assign_add(total).op
      loss = tf.cast(s.read_value(), tf.float32)
      with tf.control_dependencies([train_op]):
        after = s.read_value()
      unrolled = unrolling.Unrolled(
        train_op, 4, loss, tf.constant(2), taken=taken, fetches=[x, {"after": after}])
      with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert unrolled.run(session, unrolled.fetches) == [
          [0, {"after": 3}], [1, {"after": 6}], [2, {"after": 12}], [3, {"after": 18}]]
        with pytest.raises(tf.errors.OutOfRangeError) as caught:
          unrolled.run(session)
        assert caught.value.done == unrolling.Done(steps=2, examples=2, late=2)
        assert session.run([w, s]) == [3, 36]
  finally:
    (tf.disable_control_flow_v2 if not _BY_DEFAULT else tf.enable_control_flow_v2)()


_BY_DEFAULT = tf.control_flow_v2_enabled()


def test_a_fetch_on_a_ps_has_a_buffer_of_its_own():
  """Else a result shows the update of a later step, if it travels late: 11 of 4000 on 1.15."""
  worker = "/job:worker/task:0"
  with tf.Graph().as_default():
    with tf.device("/job:ps/task:0"):
      total = tf.get_variable("total", [], use_resource=False)
      updated = tf.assign_add(total, 1.0)
    with tf.device(worker):
      doubled = 2.0 * updated
    unrolled = unrolling.Unrolled(tf.group(doubled), 3, fetches=dict(
      total=updated, doubled=doubled, op=doubled.op), worker=worker)
    for each in unrolled.fetches:
      assert each["total"].op.type == "DeepCopy" and "/job:ps" in each["total"].device
      assert each["doubled"].op.type == "Mul" and each["op"].type == "Mul"


@pytest.mark.parametrize("is_ref", [False, True])
def test_a_large_value_travels_when_its_own_update_is_made(is_ref):
  """The small value waits for all updates, so its arrival shows that the previous step is done."""
  with tf.Graph().as_default() as graph:
    with tf.device("/job:ps/task:0"):
      sizes = {"large": 1 << 17, "small": 1, "larger": 1 << 18, "constant": 1 << 18}
      values = [tf.get_variable(name, [size], use_resource=not is_ref)
                for name, size in sizes.items()]
    with tf.device(steps.WORKER):
      loss = tf.add_n([tf.reduce_sum(value) for value in values])
    update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, var_list=values[:3])
    unrolling.Unrolled(update, 3, loss)

    assert unrolling.may_gain_in_long_runs([update, loss], steps.WORKER)
    assert not unrolling.may_gain_in_long_runs([update, loss], steps.WORKER, reads_early=False)
    assert not unrolling.may_gain_in_long_runs([update, loss, None], "/job:ps/task:0")
    waits = {}
    for op in graph.get_operations():
      if op.name.startswith("unrolled/step_2") and [
          tensor.op.name in sizes for tensor in op.inputs] == [True]:
        waits[op.inputs[0].op.name] = sorted(
          other.inputs[0].op.name for other in needed_ops([op])
          if "GradientDescent" in other.type and other.name.startswith("unrolled/step_1"))
    everything = ["large", "larger", "small"]
    assert waits == {"large": ["large"], "larger": ["larger"], "small": everything,
                     "constant": everything}
    before = len(graph.get_operations())
    unrolling.Unrolled(update, 2, loss, reads_early=False)
    assert not [op for op in graph.get_operations()[before:] if "read_before" in op.name]


@pytest.mark.parametrize("is_ref", [False, True])
@pytest.mark.parametrize("embedding", [False, True])
def test_long_runs_may_gain_where_a_ps_looks_up_rows_for_the_batch(is_ref, embedding):
  with tf.Graph().as_default():
    step = steps.build(dict(ps=["ps:1"], worker=["worker:1"]), is_ref=is_ref, embedding=embedding)
    assert unrolling.may_gain_in_long_runs(
      [step.train_op, step.loss, step.size], steps.WORKER, reads_early=False) is embedding


def test_a_step_that_prefetches_is_refused():
  with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [2], use_resource=True)
    ahead = prefetch.Prefetch()
    with tf.device("/job:worker/task:0"):
      batches = tf.raw_ops.Unstage(dtypes=[tf.float32])[0]  # staged batches are no values
      batches.set_shape([2])
      loss = tf.reduce_sum(w * batches)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    unrolling.Unrolled(train, 2, loss)
    loss = tf.reduce_sum(ahead.hold([w.read_value()])[0])
    gradient = tf.ones([2]) * loss
    train = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(gradient, w)], step)
    with pytest.raises(ValueError, match="fetches the values of one step ahead, .* not both"):
      unrolling.Unrolled(ahead.with_put(train), 2, loss)
    assert unrolling.Unrolled(ahead.with_put(train), 1, loss).steps == 1


def test_what_is_no_number_of_steps_is_refused():
  with tf.Graph().as_default():
    loss = tf.constant(1.0)
    for wrong in (0, -1, 1.5, True):
      with pytest.raises(ValueError, match="steps must be a number, 1 or more, got %r" % wrong):
        unrolling.Unrolled(tf.no_op(), wrong, loss)
    with pytest.raises(ValueError, match="give the loss or the worker's device"):
      unrolling.Unrolled(tf.no_op(), 2)
