from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.graph import task_of_op
from tf1ps.transfer import WIRE_DTYPES, buckets, local_copies

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def model(use_resource, factor=1.0):
  """A loss whose gradient of each element is its index times 3, and half of that for the rows."""
  variables = [graphs.variable(name, shape, use_resource) for name, shape in (
    ("w", [3, 2]), ("b", [2]), ("c", []), ("unused", [3]), ("large", [200]))]
  table = graphs.variable("table", [5, 2], use_resource)
  rows = tf.nn.embedding_lookup(table, [4, 0, 4])
  loss = 1.5 * tf.reduce_sum(rows)
  for variable in variables:
    if variable.op.name != "unused":
      numbers = tf.reshape(tf.range(float(variable.shape.num_elements())), variable.shape)
      loss += 3.0 * tf.reduce_sum(variable * numbers)
  optimizer = tf.train.GradientDescentOptimizer(1.0)
  return optimizer, optimizer.compute_gradients(factor * loss)


def way_up():
  return sorted((tensor.shape.as_list(), tensor.dtype.name)
                for tensor, _ in graphs.crossings(source=WORKER, target=PS[0]))


def name(shape, dtype="float32"):
  return shape, dtype


@KINDS
@pytest.mark.parametrize("wire_dtype", ["float32", "bfloat16", "float16"])
def test_gradients_arrive_by_fewer_messages(cluster, use_resource, wire_dtype):
  with cluster.graph(), tf.device(graphs.setter()):
    optimizer, pairs = model(use_resource)
    pairs = buckets.pack_gradients(pairs, 800, wire_dtype)
    assert [variable.op.name for _, variable in pairs] == [
      "w", "b", "c", "unused", "large", "table"]
    assert pairs[3][0] is None
    gradient = pairs[5][0]
    assert isinstance(gradient, tf.IndexedSlices) and gradient.values.dtype == tf.float32
    assert {task_of_op(one.op) for one, _ in pairs[:3]} == {PS[0]}
    train = optimizer.apply_gradients(pairs)
    local_copies.keep_constants_local()  # the learning rate
    ups = way_up()
    assert name([9], wire_dtype) in ups and name([200], wire_dtype) in ups
    assert name([3, 2], wire_dtype) in ups  # the rows of the table
    assert name([2]) not in ups and name([]) not in ups
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      before = session.run(tf.global_variables())
      session.run(train)
      after = session.run(tf.global_variables())
  moved = [b - a for b, a in zip(before, after)]
  for index, factor in ((0, 3), (1, 3), (2, 3), (3, 0), (4, 3)):
    expected = factor * np.arange(moved[index].size).reshape(moved[index].shape)
    np.testing.assert_allclose(moved[index], expected, atol=1e-4,
                               rtol=1e-2 if wire_dtype == "bfloat16" else 1e-3)
  np.testing.assert_allclose(moved[5][:, 0], [1.5, 0, 0, 0, 3.0], atol=1e-6)


@KINDS
def test_without_a_threshold_nothing_changes(use_resource):
  with tf.device(graphs.setter()):
    _, pairs = model(use_resource)
    packed = buckets.pack_gradients(pairs, 0)
  for (gradient, variable), (before, variable_before) in zip(packed, pairs):
    assert variable is variable_before
    if not isinstance(before, tf.IndexedSlices):
      assert gradient is before


def test_each_ps_has_its_own_bucket():
  with tf.device(graphs.setter(2)):
    variables = [graphs.variable("v%d" % i, [3], True) for i in range(6)]
    gradients = [tf.fill([3], float(i)) for i in range(6)]
  all_buckets = buckets.make_buckets(list(zip(gradients, variables)))
  assert [[one.op.name for one in bucket.variables] for bucket in all_buckets] == [
    ["v0", "v2", "v4"], ["v1", "v3", "v5"]]
  assert [bucket.device for bucket in all_buckets] == PS


def test_a_bucket_has_one_shape_and_a_name_of_its_variables():
  with tf.device(graphs.setter()):
    variables = [graphs.variable("v%d" % i, [4, 2], True) for i in range(40)]
    variables += [graphs.variable("c%d" % i, [], True) for i in range(2)]
    pairs = [(tf.zeros(variable.shape), variable) for variable in variables]
    tall, flat = buckets.make_buckets(pairs)
    fewer, _ = buckets.make_buckets(pairs[1:])
  assert tall.shape.as_list() == [160, 2] and flat.shape.as_list() == [2]
  assert tall.send().shape.as_list() == [160, 2]
  assert fewer.name != tall.name and flat.name.startswith("c0+1:")


def test_a_gradient_beside_its_variable_is_left_there():
  with tf.device(graphs.setter()):
    variables = [graphs.variable(each, [3], True) for each in "ab"]
    with tf.device(PS[0]):
      pairs = [(tf.ones([3]), variable) for variable in variables]
    assert buckets.pack_gradients(pairs, wire_dtype="float16") == pairs


def test_overflow_names_the_gradient(cluster):
  with cluster.graph(), tf.device(graphs.setter()):
    a, b = graphs.variable("a", [2], True), graphs.variable("b", [3], True)
    pairs = [(tf.ones([2]), a), (tf.constant([1.0, 2.0, 1e6]), b)]
    packed = buckets.pack_gradients(pairs, wire_dtype="float16")
    with cluster.session() as session:
      with pytest.raises(tf.errors.InvalidArgumentError,
                         match="float16 overflow: 1 values of the gradient of b and tensors"):
        session.run(packed[0][0])


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("pack_bytes", [0, 800])
def test_a_step_by_int8_is_that_of_float32_within_half_a_step_of_its_scales(
    cluster, use_resource, pack_bytes):
  """By as many messages: the scales travel with the values."""
  moved, received = {}, {}
  for wire_dtype in "float32", "int8":
    with cluster.graph(), tf.device(graphs.setter()):
      # Constant gradients would not travel: TensorFlow computes them once.
      optimizer, pairs = model(use_resource, tf.round(tf.random.uniform([], 0.9, 1.1)))
      train = optimizer.apply_gradients(buckets.pack_gradients(pairs, pack_bytes, wire_dtype))
      local_copies.keep_constants_local()  # the learning rate
      if wire_dtype == "int8":
        ups = way_up()
        # 200 of a large variable, 3 rows of the table, and 4 bytes for the scale of each.
        assert name([200 + 4], "int8") in ups and name([3 * 2 + 4], "int8") in ups
        assert (name([9 + 3 * 4], "int8") in ups) == (pack_bytes > 0)
        assert not [one for one in ups if one[1] == "float32"]
      init = tf.global_variables_initializer()
      with cluster.session() as session:
        session.run(init)
        before = session.run(tf.global_variables())
        received[wire_dtype] = {
          task: len(names) for task, names in graphs.received(session, train).items()}
        after = session.run(tf.global_variables())
    moved[wire_dtype] = [b - a for b, a in zip(before, after)]
  assert received["int8"] == received["float32"]
  for expected, found in zip(moved["float32"], moved["int8"]):
    assert np.all(np.abs(found - expected) <= np.max(np.abs(expected)) / 254 + 1e-4)


@pytest.mark.slow
def test_many_tensors_of_one_inner_shape_by_int8(cluster):
  with cluster.graph(), tf.device(graphs.setter()):
    variables = [graphs.variable("v%d" % i, [4, 2], True) for i in range(40)]
    with tf.device(WORKER):
      pairs = [(tf.fill([4, 2], 10.0 ** (i % 7)), one) for i, one in enumerate(variables)]
    packed = buckets.pack_gradients(pairs, wire_dtype="int8")
    assert way_up() == [name([40 * 8 + 40 * 4], "int8")]
    with cluster.session() as session:
      found = session.run([gradient for gradient, _ in packed])
  for i, one in enumerate(found):
    np.testing.assert_allclose(one, np.full([4, 2], 10.0 ** (i % 7)), rtol=1e-6)


def test_bad_arguments_are_refused():
  for kwargs, text in ((dict(pack_bytes=-1), "pack_bytes must be"),
                       (dict(wire_dtype="half"), "wire_dtype must be")):
    with pytest.raises(ValueError, match=text):
      buckets.make_buckets([], **kwargs)


def test_replicas_divide_alike_wherever_their_gradients_are():
  """Of variables on a worker, its own gradients travel nowhere, and those of others do."""
  found = []
  for worker in (WORKER, "/job:worker/task:1"):
    with tf.Graph().as_default():
      with tf.device(WORKER):
        variables = [graphs.variable(name, [3], True) for name in "abc"]
      with tf.device(worker):
        pairs = [(tf.ones([3]), variable) for variable in variables]
      bucket, = buckets.make_buckets(pairs, from_anywhere=True)
      found.append((bucket.name, bucket.shape.as_list(), bucket.send().shape.as_list()))
      assert len(buckets.make_buckets(pairs)) == (3 if worker == WORKER else 1)
  assert found[0] == found[1] and found[0][1:] == ([9], [9])


@pytest.fixture
def branches():
  """Conditions are operations of the graph, as in TensorFlow 1."""
  was = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  yield
  if was:
    tf.enable_control_flow_v2()


@pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("wire_dtype", WIRE_DTYPES)
def test_sending_in_a_branch_takes_no_further_message(
    cluster, branches, wire_dtype, is_sparse):
  with cluster.graph():
    with tf.device(graphs.setter()):
      variables = [graphs.variable("w", [4, 2], True), graphs.variable("b", [3, 2], True)]
    with tf.device(WORKER):
      gradients = [tf.random.uniform(variable.shape) for variable in variables]
      if is_sparse:
        indices = tf.cast(tf.random.uniform([4], maxval=4), tf.int32)
        gradients = [tf.IndexedSlices(gradients[0], indices, tf.constant([4, 2]))]
      bucket, = buckets.make_buckets(list(zip(gradients, variables)), wire_dtype=wire_dtype)

      with tf.device(PS[0]):
        handles = [tf.raw_ops.VarHandleOp(dtype=dtype, shape=tf.TensorShape(None), shared_name=name)
                   for dtype, name in ((tf.float32, "values"), (tf.int32, "indices"))]

      def send():
        arrived = bucket.send()
        parts = [arrived.values, arrived.indices] if is_sparse else [arrived]
        with tf.control_dependencies([
            tf.raw_ops.AssignVariableOp(resource=handle, value=part)
            for handle, part in zip(handles, parts)]):
          return tf.constant(True)

      sent = tf.cond(tf.random.uniform([]) < 2.0, send, lambda: tf.constant(False))
    with cluster.session() as session:
      received = graphs.received(session, sent)
      assert session.run(sent)
  # The ps receives the gradients alone, and the worker one signal.
  assert {task: len(names) for task, names in received.items()} == {
    PS[0]: 2 if is_sparse else 1, WORKER: 1}
