from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.transfer import lazy_adam

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

PS = "/job:ps/task:0"
RATE = 0.1
TABLE = np.linspace(-1, 1, 12).astype(np.float32).reshape(6, 2)
IDS = [[1, 4, 1], [4, 4, 4], [0, 1, 1]]  # of three steps: rows that repeat, and that never come
SCALES = np.array([[1, 2], [-3, 4], [0.5, -0.25]], np.float32)  # of the rows of a batch


@pytest.fixture
def session(ps):
  """A session on a real ps, and the graph for it; each test has a container of its own."""
  sessions = []

  def open_session():
    sessions.append(tf.Session("grpc://" + ps.address))
    return sessions[-1]

  with tf.Graph().as_default() as graph, graph.container("lazy-adam"), tf.device(PS):
    yield open_session
  for each in sessions:
    each.close()
  tf.Session.reset("grpc://" + ps.address, ["lazy-adam"])


def rows_loss(table, ids):
  """A loss whose gradient of the i-th row of the batch is SCALES[i]."""
  return tf.reduce_sum(tf.nn.embedding_lookup(table, ids, partition_strategy="div") * SCALES)


def make_table(use_resource, parts=None):
  partitioner = parts and tf.fixed_size_partitioner(parts)
  return tf.get_variable("table", initializer=tf.constant(TABLE), use_resource=use_resource,
                         partitioner=partitioner)


def reference(steps):
  """The table, m and v after these steps of ids, by the formulas in numpy, in float32."""
  one, rate, beta1, beta2, epsilon = np.float32([1, RATE, 0.9, 0.999, 1e-8])
  table = TABLE.copy()
  m, v = np.zeros_like(table), np.zeros_like(table)
  power1, power2 = one, one
  for ids in steps:
    power1, power2 = power1 * beta1, power2 * beta2
    for index in set(ids):
      gradient = sum(row for other, row in zip(ids, SCALES) if other == index)
      m[index] = beta1 * m[index] + (one - beta1) * gradient
      v[index] = beta2 * v[index] + (one - beta2) * gradient ** 2
      scaled = rate * np.sqrt(one - power2) / (one - power1)
      table[index] -= scaled * m[index] / (np.sqrt(v[index]) + epsilon)
  return table, m, v


def train(session, table, steps, make=lazy_adam.LazyAdamOptimizer):
  """Trains with these ids; returns the optimizer, and the table, m and v afterwards."""
  ids = tf.placeholder(tf.int64, [3])
  optimizer = make(RATE)
  step = optimizer.minimize(rows_loss(table, ids))
  session.run(tf.global_variables_initializer())
  for each in steps:
    session.run(step, {ids: each})
  parts = list(table) if table.name == "table" else [table]  # a whole one is called table:0
  slots = [[optimizer.get_slot(part, name) for part in parts] for name in ("m", "v")]
  return optimizer, [np.concatenate(session.run(each)) for each in [parts] + slots]


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
@pytest.mark.parametrize("parts", [None, 2], ids=["whole", "partitioned"])
def test_three_steps_as_in_numpy_and_untouched_rows_bit_equal(session, use_resource, parts):
  _, (table, m, v) = train(session(), make_table(use_resource, parts), IDS)
  for found, expected in zip((table, m, v), reference(IDS)):
    np.testing.assert_allclose(found, expected, rtol=1e-6)
  for row in (2, 3, 5):  # in no batch
    assert (table[row] == TABLE[row]).all() and not m[row].any() and not v[row].any()


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_a_row_that_is_away_stays_bit_equal_where_adam_goes_on_moving_it(session, use_resource):
  own = session()
  table = make_table(use_resource)
  ids = tf.placeholder(tf.int64, [3])
  optimizers = [lazy_adam.LazyAdamOptimizer(RATE), tf.train.AdamOptimizer(RATE, name="Stock")]
  moved = []
  for optimizer in optimizers:
    step = optimizer.minimize(rows_loss(table, ids))
    state = [table, optimizer.get_slot(table, "m"), optimizer.get_slot(table, "v")]
    own.run(tf.global_variables_initializer())
    own.run(step, {ids: [1, 1, 1]})
    before = own.run(state)
    own.run(step, {ids: [2, 3, 4]})
    moved.append([(old[1] != new[1]).any() for old, new in zip(before, own.run(state))])
  assert moved == [[False, False, False], [True, True, True]]


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_dense_gradients_and_batches_with_all_rows_are_adams(session, use_resource):
  own, found = session(), []
  for name, make in (("ours", lazy_adam.LazyAdamOptimizer), ("stock", tf.train.AdamOptimizer)):
    with tf.variable_scope(name, use_resource=use_resource):
      table = tf.get_variable("table", initializer=TABLE[:3])
      w = tf.get_variable("w", initializer=TABLE[:3])
      loss = rows_loss(table, [2, 0, 1]) + tf.reduce_sum(tf.square(w) * SCALES)
      step = make(RATE).minimize(loss)
    own.run(tf.global_variables_initializer())
    for _ in range(5):
      own.run(step)
    found.append(own.run([table, w]))
  np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-6)
  assert (found[0][1] == found[1][1]).all()


@pytest.mark.parametrize("first, second", [
    (tf.train.AdamOptimizer, lazy_adam.LazyAdamOptimizer),
    (lazy_adam.LazyAdamOptimizer, tf.train.AdamOptimizer)], ids=["from_adam", "to_adam"])
def test_checkpoints_go_both_ways(session, tmp_path, first, second):
  own = session()
  train(own, make_table(True), IDS[:2], first)
  saved = {v.op.name: own.run(v) for v in tf.global_variables()}
  assert set(saved) == {"table", "table/Adam", "table/Adam_1", "beta1_power", "beta2_power"}
  path = tf.train.Saver().save(own, str(tmp_path / "model.ckpt"))
  with tf.Graph().as_default(), tf.Session() as other:
    second(RATE).minimize(rows_loss(make_table(False, 3), [0, 1, 2]))
    tf.train.Saver().restore(other, path)
    whole = {}
    for variable in tf.global_variables():
      name = re.sub(r"/part_\d", "", variable.op.name)
      whole.setdefault(name, []).append(other.run(variable))
  assert set(whole) == set(saved)
  for name, parts in whole.items():
    found = np.concatenate(parts) if len(parts) > 1 else parts[0]
    assert (found == saved[name]).all(), name


def test_the_update_is_on_the_ps():
  """Nothing but the gradient's rows and their indices comes from the worker."""
  with tf.Graph().as_default() as graph, tf.device(tf.train.replica_device_setter(1)):
    table = make_table(True)
    lazy_adam.LazyAdamOptimizer(RATE).minimize(rows_loss(table, tf.placeholder(tf.int64, [3])))
    update = graph.get_operation_by_name("Adam/update_table/group_deps")
    seen, waiting, crossing = set(), [update], set()
    while waiting:
      op = waiting.pop()
      for source in [t.op for t in op.inputs] + list(op.control_inputs):
        if "/job:worker" in _place(source):
          crossing.add(source.name.split("/")[0])
        elif source not in seen:
          seen.add(source)
          waiting.append(source)
  assert crossing == {"gradients"}


def _place(op):
  groups = [each.decode() for each in op.colocation_groups()]
  return PS if "loc:@table" in groups else op.device


def test_half_precision_variables(session):
  own = session()
  table = tf.get_variable("half", initializer=TABLE.astype(np.float16))
  step = lazy_adam.LazyAdamOptimizer(RATE, epsilon=1e-4).minimize(
    tf.reduce_sum(tf.gather(table, [1])))
  own.run(tf.global_variables_initializer())
  own.run(step)
  assert own.run(table)[1] == pytest.approx(TABLE[1] - RATE, abs=2e-3)  # t = 1: by the rate


def test_a_learning_rate_that_is_a_tensor_or_a_callable(session):
  own, found = session(), []
  for index, rate in enumerate((0.1, tf.constant(0.1), lambda: 0.1)):
    with tf.variable_scope(str(index)):
      table = make_table(True)
      step = lazy_adam.LazyAdamOptimizer(rate).minimize(rows_loss(table, IDS[0]))
    own.run(tf.global_variables_initializer())
    own.run(step)
    found.append(own.run(table).tolist())
  assert found[0] == found[1] == found[2]
