from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests.transfer import graphs
from tests.transfer.graphs import PS, WORKER
from tf1ps.graph import task_of_op
from tf1ps.transfer import fetch

KINDS = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


def way_down(ps=0):
  """Shapes and types of what travels from a ps."""
  return [(tensor.shape.as_list(), tensor.dtype.name)
          for tensor, _ in graphs.crossings(source=PS[ps])]


def model(use_resource, **kwargs):
  """y = x w + b + c, with another shape each."""
  w = graphs.variable("w", [3, 2], use_resource, **kwargs)
  b = graphs.variable("b", [2], use_resource, **kwargs)
  c = graphs.variable("c", [], use_resource, **kwargs)
  return tf.matmul(tf.constant([[1.0, 10.0, 100.0]]), w) + b + c


@KINDS
@pytest.mark.parametrize("num_ps", [1, 2])
def test_the_values_are_the_same_by_fewer_messages(cluster, use_resource, num_ps):
  with cluster.graph(), tf.device(graphs.setter(num_ps)):
    y = model(use_resource)
    gradients = tf.gradients(y, tf.trainable_variables())
    classic = tf.gradients(tf.square(y), tf.trainable_variables())
    arrivals = fetch.fetch_variables()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      found = session.run([y, gradients, classic])
      received = graphs.received(session, y)
  np.testing.assert_allclose(found[0], [[4.2, 5.32]], rtol=1e-6)
  np.testing.assert_allclose(found[1][0], [[1, 1], [10, 10], [100, 100]])
  np.testing.assert_allclose(found[2][1], [8.4, 10.64], rtol=1e-6)
  assert len(received.pop(WORKER)) == num_ps and not received
  # w and c, or all three; of the second ps b alone.
  assert [len(arrival.reads) for arrival in arrivals] == [5 - 2 * num_ps + (num_ps - 1)]
  assert arrivals[0].source == PS[0] and arrivals[0].target == WORKER


@KINDS
@pytest.mark.parametrize("device", ["/cpu:0", WORKER])
def test_variables_with_a_caching_device_travel_together(cluster, use_resource, device):
  with cluster.graph(), tf.device(graphs.setter()):
    y = model(use_resource, caching_device=device)
    arrival, = fetch.fetch_variables()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      np.testing.assert_allclose(session.run(y), [[4.2, 5.32]], rtol=1e-6)
      received = graphs.received(session, y)
  assert [len(names) for names in received.values()] == [1]
  assert len(arrival.reads) == 3 and list(received) == [WORKER]


@KINDS
@pytest.mark.parametrize("wire_dtype", ["bfloat16", "float16"])
def test_narrow_values_are_cast_on_the_ps_and_back_on_the_worker(cluster, use_resource, wire_dtype):
  with cluster.graph(), tf.device(graphs.setter()):
    y = model(use_resource)
    large = graphs.variable("large", [20000], use_resource)
    total = tf.reduce_sum(large)
    fetch.fetch_variables(1 << 16, wire_dtype)
    assert way_down() == [([9], wire_dtype), ([20000], wire_dtype)]
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      np.testing.assert_allclose(session.run(y), [[4.2, 5.32]], rtol=1e-2)
      np.testing.assert_allclose(session.run(total), 1999900, rtol=1e-3)
      session.run([op for op in [large.assign(tf.fill([20000], 1e6))]])
      assert session.run(large)[0] == 1e6  # the variable keeps what it has
      if wire_dtype == "float16":
        with pytest.raises(tf.errors.InvalidArgumentError, match="20000 values of large are above"):
          session.run(total)
        session.run(y)


@KINDS
def test_large_ones_and_integers_stay_alone(use_resource):
  with tf.device(graphs.setter()):
    model(use_resource)
    tf.reduce_sum(graphs.variable("large", [200], use_resource))
    tf.reduce_sum(graphs.variable("count", [2], use_resource, tf.int32))
    tf.reduce_sum(graphs.variable("n", [2], use_resource, tf.int32))
  fetch.fetch_variables(pack_bytes=800)
  assert way_down() == [([200], "float32"), ([2], "int32"), ([2], "int32"), ([9], "float32")]


@KINDS
def test_types_travel_apart(use_resource):
  with tf.device(graphs.setter()):
    for dtype in (tf.float32, tf.float64):
      with tf.variable_scope(dtype.name):
        for name in "ab":
          tf.reduce_sum(graphs.variable(name, [2], use_resource, dtype))
  fetch.fetch_variables()
  assert way_down() == [([4], "float32"), ([4], "float64")]


@KINDS
def test_nothing_is_packed_without_a_threshold(use_resource):
  with tf.device(graphs.setter()):
    model(use_resource)
  before = way_down()
  assert fetch.fetch_variables(pack_bytes=0) == []
  assert way_down() == before and len(before) == 3


def test_what_is_read_twice_travels_once():
  with tf.device(graphs.setter()):
    w = graphs.variable("w", [500], use_resource=True)
    tf.reduce_sum(w + w.read_value())
  assert len(way_down()) > 1
  fetch.fetch_variables(pack_bytes=16)
  assert way_down() == [([500], "float32")]


def test_a_read_that_waits_keeps_its_place(cluster):
  """Its value is that after the update which it waits for."""
  with cluster.graph(), tf.device(graphs.setter()):
    w = graphs.variable("w", [2], use_resource=True)
    b = graphs.variable("b", [2], use_resource=True)
    total = tf.reduce_sum(w + b)
    with tf.control_dependencies([total]):
      update = w.assign_add([1.0, 1.0])
    with tf.control_dependencies([update]):
      after = tf.reduce_sum(w.read_value() + 0.0)
    fetch.fetch_variables()
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      np.testing.assert_allclose(session.run([total, after]), [0.02, 2.01], rtol=1e-5)


@KINDS
def test_what_stays_on_the_ps_is_not_touched(use_resource):
  """Updates, averages and gathers beside the variable, and a branch that may not take it."""
  with tf.device(graphs.setter()):
    w = graphs.variable("w", [4, 2], use_resource)
    b = graphs.variable("b", [2], use_resource)
    rows = tf.gather(w, [1])
    with tf.device(w.device):
      beside = tf.reduce_sum(b)
    before = list(beside.op.inputs)
    tf.reduce_sum(rows + b)
    gathers = [op for op in tf.get_default_graph().get_operations() if "Gather" in op.type]
    inputs = [list(op.inputs) for op in gathers]
  arrived = [
    read.name for one in fetch.fetch_variables(wire_dtype="bfloat16") for read in one.reads
  ]
  assert arrived == (["b"] if use_resource else ["w", "b"])
  assert list(beside.op.inputs) == before
  # A gather on a ref variable runs where the setter put it, on the worker: its input travels.
  assert use_resource == ([list(op.inputs) for op in gathers] == inputs)


def test_an_initializer_needs_no_other_variable_than_before(cluster):
  """It takes a value itself, and one that the ps computes of it."""
  with cluster.graph(), tf.device(graphs.setter()):
    a = graphs.variable("a", [2], True)
    with tf.device(a.device):
      sum_of_a = tf.reduce_sum(a)
    later = [tf.get_variable(name, initializer=lambda v=value: v + 1.0, use_resource=True)
             for name, value in (("taken", a.read_value()), ("computed", sum_of_a))]
    y = tf.reduce_sum(a * 2.0 + later[0]) + sum_of_a + later[1]
    arrival, = fetch.fetch_variables()
    assert len(arrival.reads) == 3
    with cluster.session() as session:
      session.run(a.initializer)
      session.run([one.initializer for one in later])
      assert session.run(y) == pytest.approx(0.02 + 2.01 + 0.01 + 1.01)


@KINDS
def test_each_task_gets_its_own(use_resource):
  other = "/job:worker/task:1"
  with tf.device(graphs.setter()):
    w = graphs.variable("w", [3], use_resource)
    b = graphs.variable("b", [2], use_resource)
    for worker in (WORKER, other):
      with tf.device(worker):
        tf.reduce_sum(tf.identity(w)), tf.reduce_sum(b + 1.0)
  arrivals = fetch.fetch_variables()
  assert [(arrival.target, len(arrival.reads)) for arrival in arrivals] == [(WORKER, 2), (other, 2)]
  assert [target for _, target in graphs.crossings(source=PS[0])] == [WORKER, other]


@KINDS
def test_without_tasks_nothing_travels(use_resource):
  model(use_resource)
  assert fetch.fetch_variables(wire_dtype="float16") == []


def test_operations_without_a_device_are_the_workers_where_it_is_named():
  with tf.device(PS[0]):
    w = graphs.variable("w", [3], True)
    b = graphs.variable("b", [2], True)
  with tf.device(None):
    y = tf.reduce_sum(w.read_value()) + tf.reduce_sum(b.read_value())
  assert y.device == ""
  assert fetch.fetch_variables() == []
  arrival, = fetch.fetch_variables(worker=WORKER)
  assert arrival.target == WORKER and task_of_op(arrival.tensors[0].op) == WORKER


def test_what_arrives_may_be_held(cluster):
  """Also what travels alone and as it is."""
  with cluster.graph(), tf.device(graphs.setter()):
    y = model(True)
    total = tf.reduce_sum(graphs.variable("large", [200], True))
    held = []

    def hold(tensors):
      held.extend(tensors)
      return [10.0 * tensor for tensor in tensors]

    fetch.fetch_variables(pack_bytes=800, hold=hold)
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      np.testing.assert_allclose(session.run([tf.squeeze(y)[1], total]), [53.2, 1990.0], rtol=1e-5)
  assert sorted(tensor.shape.as_list() for tensor in held) == [[9], [200]]


@pytest.mark.parametrize("kwargs, text", [
  (dict(pack_bytes=-1), "pack_bytes must be"), (dict(wire_dtype="half"), "wire_dtype must be")])
def test_bad_arguments_are_refused(kwargs, text):
  with pytest.raises(ValueError, match=text):
    fetch.fetch_variables(**kwargs)


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("wire_dtype", ["bfloat16", "float16"])
def test_what_the_model_assigns_to_is_not_rounded(cluster, use_resource, wire_dtype):
  with cluster.graph(), tf.device(graphs.setter()):
    kwargs = dict(use_resource=use_resource, initializer=tf.zeros_initializer())
    counter = tf.get_variable("counter", [], trainable=False, **kwargs)
    clipped = tf.get_variable("clipped", [], **kwargs)
    w = tf.get_variable("w", [], **kwargs)
    y = w + 0.001
    step = [one.assign(one + 1.001).op for one in (counter, clipped)]
    arrivals = fetch.fetch_variables(wire_dtype=wire_dtype)
    assert sorted((arrival.tensors[0].dtype.name, len(arrival.reads)) for arrival in arrivals) == [
      (wire_dtype, 1), ("float32", 2)]
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      for _ in range(300):
        session.run(step)
      np.testing.assert_allclose(
        session.run([counter, clipped, y]), [300.3, 300.3, 0.001], rtol=1e-4)


def test_a_saver_that_was_there_before_is_no_reason():
  with tf.device(graphs.setter()):
    tf.reduce_sum(graphs.variable("w", [3], True) + 1.0)
    tf.train.Saver()
    arrival, = fetch.fetch_variables(wire_dtype="bfloat16")
  assert arrival.tensors[0].dtype == tf.bfloat16


@KINDS
@pytest.mark.parametrize("wire_dtype", ["float32", "bfloat16", "float16"])
def test_an_optimizers_own_numbers_stay_exact_between_ps(cluster, use_resource, wire_dtype):
  """Adam's powers of beta go from one ps to the other: as 0.999 would be 1.0 in bfloat16."""
  with cluster.graph(), tf.device(graphs.setter(2)):
    a, b = graphs.variable("a", [2], use_resource), graphs.variable("b", [2], use_resource)
    loss = tf.reduce_sum(a) + tf.reduce_sum(b)
    held = []
    train = tf.train.AdamOptimizer(0.05).minimize(loss)
    fetch.fetch_variables(
      wire_dtype=wire_dtype, hold=lambda tensors: held.append(tensors) or tensors
    )
    init = tf.global_variables_initializer()
    with cluster.session() as session:
      session.run(init)
      before = session.run([a, b])
      session.run(train)
      after = session.run([a, b])
  np.testing.assert_allclose(np.subtract(before, after), np.full([2, 2], 0.05), rtol=1e-4)
  assert {task_of_op(tensor.op) for tensors in held for tensor in tensors} == {WORKER}
