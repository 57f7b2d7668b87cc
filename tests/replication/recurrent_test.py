from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks
from tf1ps.compat import recurrent_cells
from tf1ps.replication import recurrent, split_cost

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

CPUS = tf.ConfigProto(device_count={"CPU": 2})
TIMES, BATCH, DEPTH, UNITS = 5, 2, 3, 4
X = np.random.RandomState(0).randn(TIMES, BATCH, DEPTH).astype(np.float32)


def build_and_run(build, kind, devices, target="", fed_times=None):
  """Returns (outputs, gradients) of two layers with given variables, sorted by their names."""
  with tf.Graph().as_default():
    inputs = tf.placeholder(tf.float32, [fed_times, BATCH, DEPTH])
    cells = [kind(UNITS, "first"), kind(UNITS, "second")]
    layers = build(inputs, cells, devices)
    variables = sorted(tf.trainable_variables(), key=lambda v: v.op.name)
    gradients = tf.gradients(
      tf.reduce_mean(tf.square(layers.outputs)), variables, colocate_gradients_with_ops=True)
    rng = np.random.RandomState(1)
    assigns = [v.assign(rng.randn(*v.shape.as_list())) for v in variables]
    with tf.Session(target, config=CPUS) as session:
      session.run(tf.global_variables_initializer())
      session.run(assigns)
      return session.run([layers.outputs, gradients, layers.states], {inputs: X})


def unrolled_on_one(inputs, cells, devices):
  return recurrent.unrolled_recurrent(inputs, cells, [""] * len(cells))


def assert_same(found, expected):
  np.testing.assert_allclose(found[0], expected[0], atol=1e-6)
  for some, other in zip(found[1], expected[1]):
    np.testing.assert_allclose(some, other, atol=1e-6)
  for some, other in zip(found[2], expected[2]):
    np.testing.assert_allclose(some, other, atol=1e-6)


@pytest.fixture(autouse=True)
def control_flow_v1():
  """What `tf.disable_v2_behavior` chooses; the choice of before holds again afterwards."""
  was = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  yield
  if was:
    tf.enable_control_flow_v2()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [recurrent_cells.LSTMCell, recurrent_cells.GRUCell])
def test_it_equals_the_layers_on_one_device(kind):
  devices = ["/cpu:0", "/cpu:1"]
  expected = build_and_run(unrolled_on_one, kind, devices, fed_times=TIMES)
  assert expected[0].shape == (TIMES, BATCH, UNITS)
  assert_same(build_and_run(recurrent.unrolled_recurrent, kind, devices, fed_times=TIMES), expected)
  assert_same(build_and_run(recurrent.looped_recurrent, kind, devices), expected)


@pytest.mark.slow
def test_it_equals_them_on_tasks_of_a_cluster(forks):
  expected = build_and_run(
    unrolled_on_one, recurrent_cells.LSTMCell, ["", ""], fed_times=TIMES)
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    where = [task.name for task in tasks], "grpc://" + tasks[0].address
    for build in (recurrent.unrolled_recurrent, recurrent.looped_recurrent):
      assert_same(build_and_run(build, recurrent_cells.LSTMCell, *where, fed_times=TIMES), expected)


class Waiting:
  """A cell that counts times. In layer 1 it waits at each time until layer 0 is one time further.

  Layer 0 puts a token into a queue at each time. Layer 1 takes two of them at the first time, one
  at each of the next, none at the last: so after its time t, layer 0 has done time t + 1.
  """

  units = 1

  def __init__(self, layer, queue):
    self._layer, self._queue = layer, queue

  def build(self, depth):
    pass

  def zero_state(self, batch):
    return tf.zeros([batch, 1])

  def __call__(self, inputs, state):
    if self._layer == 0:
      with tf.control_dependencies([inputs, state]):
        wait = self._queue.enqueue(0.0)
    else:
      with tf.control_dependencies([inputs]):
        time = state[0, 0]
        count = tf.where(time < 1, 2, tf.where(time < TIMES - 1, 1, 0))
        wait = self._queue.dequeue_many(count)
    with tf.control_dependencies([wait]):
      return tf.identity(inputs), state + 1.0


@pytest.mark.parametrize("build", [recurrent.unrolled_recurrent, recurrent.looped_recurrent])
def test_a_layer_works_while_the_one_before_is_at_the_next_time(build):
  with tf.Graph().as_default():
    queue = tf.queue.FIFOQueue(100, tf.float32, [()])
    inputs = tf.placeholder(tf.float32, [TIMES, BATCH, 1])
    layers = build(inputs, [Waiting(0, queue), Waiting(1, queue)], ["/cpu:0", "/cpu:1"])
    with tf.Session(config=CPUS) as session:
      # Were it at the same time for both, the first one would wait for ever.
      outputs, states = session.run(
        [layers.outputs, layers.states], {inputs: X[:, :, :1]},
        options=tf.RunOptions(timeout_in_ms=60000))
      assert outputs.tolist() == X[:, :, :1].tolist()
      assert [state[0, 0] for state in states] == [TIMES, TIMES]
      assert session.run(queue.size()) == 0


def test_only_what_layers_tell_each_other_travels_in_a_loop():
  with tf.Graph().as_default():
    inputs = tf.placeholder(tf.float32, [TIMES, BATCH, DEPTH])
    cells = [recurrent_cells.LSTMCell(UNITS, name) for name in ("first", "second")]
    layers = recurrent.looped_recurrent(inputs, cells, ["/cpu:0", "/cpu:1"])
    found = split_cost.crossings([layers.outputs], iterations=TIMES)
  large = [c.bytes for c in found if c.bytes > 4 * TIMES]  # beside the loop's counters
  assert large == [TIMES * BATCH * UNITS * 4]


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell"])
def test_cells_in_numpy(kind):
  rng = np.random.RandomState(2)
  x, state = rng.randn(BATCH, DEPTH), rng.randn(2, BATCH, UNITS)
  with tf.Graph().as_default(), tf.Session() as session:
    cell = getattr(recurrent_cells, kind)(UNITS, "cell")
    cell.build(DEPTH)
    cell.build(DEPTH)  # once is enough
    shapes = {v.op.name: v.shape.as_list() for v in tf.global_variables()}
    before = recurrent_cells.LSTMState(*map(tf.constant, state.astype(np.float32))) if (
      kind == "LSTMCell") else tf.constant(state[0].astype(np.float32))
    values = [rng.randn(*v.shape.as_list()) for v in cell.variables]
    session.run(tf.global_variables_initializer())
    biases = [session.run(v)[0] for v in cell.variables[1::2]]
    session.run([v.assign(value) for v, value in zip(cell.variables, values)])
    outputs, after = session.run(cell(tf.constant(x.astype(np.float32)), before))

  def sigmoid(z):
    return 1 / (1 + np.exp(-z))

  if kind == "LSTMCell":
    assert shapes == {"cell/kernel": [7, 16], "cell/bias": [16]} and biases == [0.0]
    i, j, f, o = np.split(np.hstack([x, state[1]]) @ values[0] + values[1], 4, 1)
    c = state[0] * sigmoid(f + 1) + sigmoid(i) * np.tanh(j)
    h = np.tanh(c) * sigmoid(o)
    np.testing.assert_allclose(after.c, c, atol=1e-5)
    np.testing.assert_allclose(after.h, h, atol=1e-5)
  else:
    assert shapes == {"cell/gates/kernel": [7, 8], "cell/gates/bias": [8],
                      "cell/candidate/kernel": [7, 4], "cell/candidate/bias": [4]}
    assert biases == [1.0, 0.0]
    r, u = np.split(sigmoid(np.hstack([x, state[0]]) @ values[0] + values[1]), 2, 1)
    candidate = np.tanh(np.hstack([x, r * state[0]]) @ values[2] + values[3])
    h = u * state[0] + (1 - u) * candidate
    np.testing.assert_allclose(after, h, atol=1e-5)
  np.testing.assert_allclose(outputs, h, atol=1e-5)


@pytest.mark.skipif(tf.VERSION >= "2", reason="TensorFlow 2 has no cells to compare with")
@pytest.mark.parametrize("ours, stock", [("LSTMCell", "BasicLSTMCell"), ("GRUCell", "GRUCell")])
def test_what_tensorflow_1_trained_can_be_restored(ours, stock, tmp_path):
  x = X[0]
  with tf.Graph().as_default(), tf.Session() as session:
    cell = getattr(tf.nn.rnn_cell, stock)(UNITS, name="cell")
    outputs, _ = cell(tf.constant(x), cell.zero_state(BATCH, tf.float32))
    session.run(tf.global_variables_initializer())
    expected = session.run(outputs)
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  with tf.Graph().as_default(), tf.Session() as session:
    cell = getattr(recurrent_cells, ours)(UNITS, "cell")
    cell.build(DEPTH)
    outputs, _ = cell(tf.constant(x), cell.zero_state(BATCH))
    tf.train.Saver().restore(session, path)
    np.testing.assert_allclose(session.run(outputs), expected, atol=1e-6)


def cells(count):
  return [recurrent_cells.GRUCell(2, "cell%d" % i) for i in range(count)]


@pytest.mark.parametrize(
  "function, message",
  [
    (lambda x: recurrent.unrolled_recurrent(x, cells(2), ["/cpu:0"]), "2 cells and 1 devices"),
    (lambda x: recurrent.looped_recurrent(x, [], []), "0 cells and 0 devices"),
    (lambda x: recurrent.unrolled_recurrent(x, cells(1), [""], []), "1 cells and 0 states"),
    (
      lambda x: recurrent.looped_recurrent(x, cells(2), [""] * 2, parallel_iterations=1),
      "is 1, and must be at least the num",
    ),
    (
      lambda x: recurrent.unrolled_recurrent(
        tf.placeholder(tf.float32, [None, 2, 3]), cells(1), [""]
      ),
      r"of a known time \(or use looped_recurrent\)",
    ),
    (
      lambda x: recurrent.looped_recurrent(
        tf.placeholder(tf.float32, [5, 2, None]), cells(1), [""]
      ),
      "of a known depth",
    ),
    (lambda x: recurrent_cells.LSTMCell(0), "at least one unit, got 0"),
  ],
)
def test_arguments_that_cannot_work(function, message):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
    function(tf.constant(X))


def test_the_control_flow_of_tensorflow_2_is_refused():
  tf.enable_control_flow_v2()
  try:
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Call tf.disable_v2_behavior"):
      recurrent.looped_recurrent(tf.constant(X), cells(1), [""])
  finally:
    tf.disable_control_flow_v2()
