from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.placement import device_setter, parts_of_table
from tf1ps.transfer import embedding, wire

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

ROWS, WIDTH = 7, 2
TABLE = np.arange(1, 15, dtype=np.float32).reshape(ROWS, WIDTH)
BAGS = [[1, 4, 1], [], [6], [0, 5], []]  # repeated, empty, single; the last is empty
WEIGHTS = [[1, 2, -0.5], [], [4], [0.5, 0.25], []]
DENSE = [[1, 4, 1], [6, 6, 0], [2, 5, 3]]
SLOPE = np.array([[1, 2], [3, 4], [5, 6], [-1, 2], [7, 8]], np.float32)  # of the loss by the bags
_names = itertools.count()


@pytest.fixture(scope="module")
def worker(forks):
  """A cluster of two ps, which are processes, and this process as the worker; its server."""
  jobs = {"ps": harness.addresses(2), "worker": harness.addresses(1)}
  servers = [forks.start("ps %d" % i, cluster_tasks.serve, jobs, "ps", i) for i in range(2)]
  for server in servers:
    server.wait_for("up")
  yield tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  for server in servers:
    server.kill()


@pytest.fixture(params=[(True, 1), (False, 2), (True, 2)],
                ids=["resource, 1 ps", "ref, 2 ps", "resource, 2 ps"])
def table(request, worker):
  """A table in a graph of its own: whole on a ps, or four parts in turn on two."""
  use_resource, num_ps = request.param
  setter = device_setter.replica_device_setter(num_ps, worker_device="/job:worker/task:0")
  with tf.Graph().as_default(), tf.device(setter):
    yield make_table(use_resource, 4 if num_ps == 2 else None)


def make_table(use_resource=True, parts=None, axis=0):
  partitioner = parts and tf.fixed_size_partitioner(parts, axis=axis)
  return tf.get_variable("table%d" % next(_names), initializer=tf.constant(TABLE),
                         use_resource=use_resource, partitioner=partitioner)


def run(worker, fetches, feed=None):
  with tf.Session(worker.target) as session:
    session.run(tf.global_variables_initializer())
    return session.run(fetches, feed)


def sparse(rows, dtype):
  """A SparseTensor of lists of different lengths."""
  places = [[i, j] for i, row in enumerate(rows) for j in range(len(row))]
  return tf.SparseTensor(places, tf.constant([x for row in rows for x in row], dtype),
                         [len(rows), 3])


def expected(bags, weights, combiner):
  """The combined rows, and the gradient of sum(SLOPE * combined) by the table, in numpy."""
  weights = weights or [[1] * len(ids) for ids in bags]
  values, gradient = np.zeros([len(bags), WIDTH]), np.zeros_like(TABLE)
  for i, (ids, own) in enumerate(zip(bags, weights)):
    divisor = {"sum": 1, "mean": np.sum(own), "sqrtn": np.sqrt(np.sum(np.square(own)))}[combiner]
    for index, weight in zip(ids, own):
      values[i] += weight * TABLE[index] / divisor
      gradient[index] += weight * SLOPE[i] / divisor
  return values, gradient


def table_gradient(loss, table):
  """The gradient by the whole table, dense."""
  parts = table if table.name.count(":") == 0 else [table]
  parts = list(parts)
  gradients = tf.gradients(loss, parts)
  assert all(isinstance(each, tf.IndexedSlices) for each in gradients)
  return tf.concat([tf.math.unsorted_segment_sum(each.values, each.indices, part.shape[0])
                    for each, part in zip(gradients, parts)], 0)


def check(worker, table, cases):
  """Compares lookups, (tensor, bags, weights, combiner) each, and their gradients, in one run."""
  loss = [tf.reduce_sum(found * SLOPE[:len(bags)]) for found, bags, _, _ in cases]
  fetches = [(case[0], table_gradient(loss, table)) for case, loss in zip(cases, loss)]
  for found, (_, bags, weights, combiner) in zip(run(worker, fetches), cases):
    for one, other in zip(found, expected(bags, weights, combiner)):
      np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_bags_of_a_sparse_tensor(worker, table):
  lookup, cases = embedding.embedding_lookup_sparse, []
  ids, weights = sparse(BAGS, tf.int64), sparse(WEIGHTS, tf.float32)
  for combiner in embedding.COMBINERS:
    cases.append((lookup(table, ids, combiner=combiner), BAGS, None, combiner))
    cases.append((lookup(table, ids, weights, combiner=combiner), BAGS, WEIGHTS, combiner))
  assert cases[0][0].shape.as_list() == [5, WIDTH]
  check(worker, table, cases)


@pytest.mark.slow
def test_bags_of_equal_size(worker, table):
  lookup, cases = embedding.embedding_lookup_sparse, []
  for combiner in embedding.COMBINERS:
    for dtype in (tf.int32, tf.int64):
      cases.append((lookup(table, tf.constant(DENSE, dtype), combiner=combiner), DENSE, None,
                    combiner))
  ids = tf.placeholder_with_default([[1, 4, -1], [-1, -1, -1], [6, -1, 6]], [None, None])
  weights = [[1., 2, 100], [100, 100, 100], [3, 100, -1]]
  cases.append((lookup(table, ids, weights, padding_id=-1), [[1, 4], [], [6, 6]],
                [[1, 2], [], [3, -1]], "mean"))
  assert cases[0][0].shape.as_list() == [3, WIDTH]
  check(worker, table, cases)


def test_a_batch_whose_size_is_known_later(worker, table):
  ids = tf.placeholder(tf.int64, [None, None])
  found = embedding.embedding_lookup_sparse(table, ids)
  for bags in (DENSE, DENSE[:1], np.zeros([0, 3]), np.zeros([2, 0])):
    values, _ = expected([[int(index) for index in ids] for ids in bags], None, "sum")
    sizes = np.maximum(np.shape(bags)[1], 1)
    np.testing.assert_allclose(run(worker, found, {ids: bags}), values / sizes, rtol=1e-6)


def test_the_gradient_by_the_weights(worker, table):
  weights = tf.constant([x for row in WEIGHTS for x in row])
  places = sparse(BAGS, tf.int32)
  found = embedding.embedding_lookup_sparse(
    table, places, tf.SparseTensor(places.indices, weights, places.dense_shape), combiner="sum")
  gradient, = tf.gradients(tf.reduce_sum(found * SLOPE), weights)
  numbers = [(i, index) for i, ids in enumerate(BAGS) for index in ids]
  np.testing.assert_allclose(
    run(worker, gradient), [TABLE[index] @ SLOPE[i] for i, index in numbers], rtol=1e-6)


def test_rows_and_their_gradient(worker, table):
  fetches, wanted = [], []
  for ids in (np.array(DENSE), np.array(5)):
    slope = np.arange(ids.size * WIDTH, dtype=np.float32).reshape(ids.shape + (WIDTH,))
    gradient = np.zeros_like(TABLE)
    np.add.at(gradient, ids, slope)
    for unique in (False, True):
      found = embedding.embedding_lookup(table, ids, unique=unique)
      assert found.shape.as_list() == list(ids.shape) + [WIDTH]
      fetches.append((found, table_gradient(tf.reduce_sum(found * slope), table)))
      wanted.append((TABLE[ids], gradient))
  for one, other in zip(run(worker, fetches), wanted):
    assert (one[0] == other[0]).all() and (one[1] == other[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("wire_dtype", ["bfloat16", "float16"])
def test_rows_of_a_narrower_type(worker, table, wire_dtype):
  """The numbers have few digits, so that nothing is lost."""
  wire.use_wire_dtype(wire_dtype)
  test_rows_and_their_gradient(worker, table)
  found = embedding.embedding_lookup(
    table, tf.placeholder_with_default([1, 6, 1, 1, 6], [5]), unique=True)
  step = train_step(found)
  assert crossing_floats(worker, step) == []
  counts = crossing_floats(worker, step, tf.as_dtype(wire_dtype))
  assert sum(rows for rows, _ in counts) == 4  # of two ids, down and up


def test_rows_of_a_table_of_scalars_and_of_matrices(worker):
  with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
    for shape in ([ROWS], [ROWS, 2, 3]):
      values = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
      whole = tf.get_variable("of_rank_%d" % len(shape), initializer=values)
      with tf.device("/job:worker/task:0"):
        found = embedding.embedding_lookup(whole, DENSE, wire_dtype="bfloat16")
      assert found.shape.as_list() == [3, 3] + shape[1:]
      assert (run(worker, found) == values[np.array(DENSE)]).all()


def test_equal_ids_travel_once(worker, table):
  rows = embedding.embedding_lookup(table, tf.placeholder_with_default([1, 6, 1, 1, 6], [5]),
                                    unique=True)
  with warnings.catch_warnings():
    warnings.simplefilter("error", UserWarning)  # of a sparse gradient that is made dense
    step = train_step(rows)
  counts = crossing_floats(worker, step)
  assert sum(rows for rows, _ in counts) == 4  # of two ids, down and up


def test_rows_of_floats_are_refused():
  with tf.Graph().as_default(), pytest.raises(TypeError, match="ids must be int32 or int64, got f"):
    embedding.embedding_lookup(make_table(), [1.9])


def test_rows_of_a_narrower_type_are_counted_by_int32():
  with tf.Graph().as_default():
    table = tf.get_variable("table", [2 ** 31, 1], initializer=tf.zeros_initializer())
    with pytest.raises(ValueError, match="as bfloat16 only from a table of .* has 2147483648"):
      embedding.embedding_lookup(table, [1], wire_dtype="bfloat16")
    assert embedding.embedding_lookup(table, tf.constant([1], tf.int64)).shape == [1, 1]


def test_an_id_that_is_no_row_is_refused(worker, table):
  ids = tf.placeholder(tf.int64, [1, 2])
  lookups = [embedding.embedding_lookup(table, ids),
             embedding.embedding_lookup(table, ids, unique=True),
             embedding.embedding_lookup(table, ids, wire_dtype="bfloat16"),
             embedding.embedding_lookup_sparse(table, ids)]
  with tf.Session(worker.target) as session:
    session.run(tf.global_variables_initializer())
    for found in lookups:
      for index in (ROWS, -1, 2 ** 32):
        try:
          session.run(found, {ids: [[1, index]]})
        except tf.errors.InvalidArgumentError as error:
          assert "is not in" in str(error)
        except UnicodeDecodeError as error:  # TensorFlow appends the log, bytes of records and all
          assert b"is not in" in error.object
        else:
          pytest.fail("%d is taken for a row" % index)


def test_only_bags_travel(worker, table):
  """Tensors on their way between tasks: ids up, [batch, width] down and up, and no rows."""
  ids = tf.tile(tf.placeholder_with_default(DENSE, [3, 3]), [1, 5])  # [3, 15]
  step = train_step(embedding.embedding_lookup_sparse(table, ids, combiner="sum"))
  bags = [3, WIDTH]
  counts = crossing_floats(worker, step)
  num_ps = len({each.device for each in tf.trainable_variables()})
  assert sorted(counts) == [bags] * 2 * num_ps


@pytest.mark.slow
@pytest.mark.parametrize("wire_dtype", ["bfloat16", "float16"])
def test_bags_of_a_narrower_type(worker, table, wire_dtype):
  """The numbers have few digits, so that nothing is lost."""
  wire.use_wire_dtype(wire_dtype)
  found = [embedding.embedding_lookup_sparse(table, ids, combiner="sum") for ids in (
    sparse(BAGS, tf.int64), tf.constant(DENSE))]
  check(worker, table, [(found[0], BAGS, None, "sum"), (found[1], DENSE, None, "sum")])
  step = train_step(found[1])
  num_ps = len({each.device for each in tf.trainable_variables()})
  assert crossing_floats(worker, step) == []
  assert sorted(crossing_floats(worker, step, tf.as_dtype(wire_dtype))) == [[3, WIDTH]] * 2 * num_ps


@pytest.mark.slow
def test_an_overflow_of_float16_names_the_table_or_the_gradient(worker, table):
  ids = tf.constant([[1, 2]])
  found = [embedding.embedding_lookup_sparse(
    table, ids, weights, combiner="sum", wire_dtype="float16") for weights in ([[1., 1e5]], None)]
  gradient = table_gradient(tf.reduce_sum(found[1] * 1e5), table)
  large = embedding.embedding_lookup(
    tf.get_variable("large", initializer=[1., 7e4, -8e4]), [1, 0, 2], wire_dtype="float16")
  with tf.Session(worker.target) as session:
    session.run([tf.global_variables_initializer()])
    for fetch, name in ((found[0], r"bags of table\d+"), (gradient, "the gradient of embedding"),
                        (large, "rows of large")):
      with pytest.raises(tf.errors.InvalidArgumentError, match="2 values of %s.* are above" % name):
        session.run(fetch)


def test_stock_lets_all_rows_travel(worker):
  with tf.Graph().as_default(), tf.device(device_setter.replica_device_setter(
      1, worker_device="/job:worker/task:0")):
    ids = tf.tile(tf.placeholder_with_default(DENSE, [3, 3]), [1, 5])
    rows = tf.nn.embedding_lookup(make_table(), ids)
    assert [45, WIDTH] in crossing_floats(worker, train_step(tf.reduce_sum(rows, 1)))


def train_step(bags):
  loss = tf.reduce_sum(tf.square(bags))
  return tf.train.AdagradOptimizer(0.1).minimize(loss)


def crossing_floats(worker, step, dtype=tf.float32):
  """The shapes of the tensors of a type on edges between tasks, each once for each receiver."""
  operations, waiting = set(), [step]
  while waiting:
    operation = waiting.pop()
    if operation not in operations:
      operations.add(operation)
      waiting += [tensor.op for tensor in operation.inputs] + list(operation.control_inputs)
  edges = {(tensor.name, task_of(operation)) for operation in operations
           for tensor in operation.inputs if tensor.dtype == dtype
           and task_of(tensor.op) != task_of(operation)}
  names = sorted(name for name, _ in edges)
  graph = tf.get_default_graph()
  values = run(worker, [tf.identity(graph.get_tensor_by_name(name)) for name in names])
  return [list(value.shape) for value in values if value.size > 1]  # a scalar is a rate


def task_of(operation):
  """Job and task; a variable's value is read, and its update made, where the variable is."""
  spec = tf.DeviceSpec.from_string(operation.device)
  return spec.job, spec.task


def test_a_table_partitioned_by_its_columns_is_refused():
  with tf.Graph().as_default():
    table = make_table(parts=2, axis=1)
    for lookup in (embedding.embedding_lookup, embedding.embedding_lookup_sparse):
      with pytest.raises(ValueError, match="partitioned along another axis than 0: its part "
                         r"table\d+/part_0 has the shape \[7, 1\]. A lookup needs whole rows"):
        lookup(table, [[1]])
    with tf.Session() as session:  # what TensorFlow does
      session.run(tf.global_variables_initializer())
      assert session.run(tf.nn.embedding_lookup(table, [2, 4], partition_strategy="div")).tolist() \
        == [[5.0], [9.0]]


def test_stock_reads_other_rows_of_a_partitioned_table_by_default():
  with tf.Graph().as_default(), tf.Session() as session:
    table = make_table(parts=2)
    session.run(tf.global_variables_initializer())
    stock, ours = session.run([lookup(table, [1, 2]) for lookup in (
      tf.nn.embedding_lookup, embedding.embedding_lookup)])
    assert (ours == TABLE[[1, 2]]).all() and (stock == TABLE[[4, 1]]).all()


@pytest.mark.parametrize("arguments, error, text", [
  ({"combiner": "max"}, ValueError, "combiner must be one of mean, sum, sqrtn, got 'max'"),
  ({"wire_dtype": "int4"}, ValueError, "wire_dtype must be one of float32, .* got 'int4'"),
  ({"sp_ids": [1, 2]}, ValueError, r"dense sp_ids must have the shape \[batch, ids\], got \(2,\)"),
  ({"sp_weights": "sparse"}, TypeError, "sp_weights must be of the same kind as sp_ids"),
  ({"sp_ids": "sparse", "padding_id": 0}, ValueError, "padding_id=0 is for dense ids"),
  ({"sp_ids": [[1.9, 2.9]]}, TypeError, "sp_ids must be int32 or int64, got float32"),
  ({"sp_ids": "floats"}, TypeError, "sp_ids must be int32 or int64, got float32"),
  ({"sp_weights": [[1.0, 2.0]]}, ValueError,
   r"sp_weights must have the shape of sp_ids, \(1, 1\), got \(1, 2\)"),
  ({"params": "shards"}, TypeError, "A list of shards does not say which rows each shard holds"),
  ({"params": "vector"}, ValueError, "bags need a table .rows, width. of less than"),
])
def test_what_cannot_be_is_refused(arguments, error, text):
  with tf.Graph().as_default():
    things = {"sparse": sparse(BAGS, tf.int32), "floats": sparse(BAGS, tf.float32),
              "shards": [make_table(), make_table()], "vector": tf.get_variable("vector", [5])}
    arguments = {name: things.get(value, value) if isinstance(value, str) else value
                 for name, value in arguments.items()}
    arguments = dict({"params": make_table(), "sp_ids": [[1]]}, **arguments)
    with pytest.raises(error, match=text):
      embedding.embedding_lookup_sparse(**arguments)


FIVE_ROWS = np.arange(10, dtype=np.float32).reshape(5, 2)


def evaluate_parts(fetches):
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    return session.run(fetches)


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_sums_and_gradients_of_two_parts(use_resource):
  with tf.Graph().as_default():
    table = tf.get_variable("table", initializer=tf.constant(FIVE_ROWS), use_resource=use_resource,
                            partitioner=tf.fixed_size_partitioner(2))
    weights = tf.constant([1., 2, 3])
    sums = embedding._sum_rows(
      parts_of_table(table), tf.constant([4, 0, 4]), tf.constant([0, 2, 2]), 4, weights)
    slope = tf.constant([[1., 1], [0, 0], [10, 100], [0, 0]])
    first, second, by_weights = tf.gradients(tf.reduce_sum(sums * slope), list(table) + [weights])
    found = evaluate_parts([sums, first, second, by_weights])
  assert found[0].tolist() == [[8, 9], [0, 0], [0 + 24, 2 + 27], [0, 0]]
  # (values, indices, shape): the rows 0 to 2 are in the first part, 3 and 4 in the second.
  assert [each.tolist() for each in found[1]] == [[[20, 200]], [0], [3, 2]]
  assert [each.tolist() for each in found[2]] == [[[1, 1], [30, 300]], [1, 1], [2, 2]]
  assert found[3].tolist() == [17, 100, 80 + 900]


@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_the_gradient_is_made_beside_the_variable(use_resource):
  with tf.Graph().as_default():
    with tf.device("/job:ps/task:3"):
      table = tf.get_variable("table", initializer=FIVE_ROWS, use_resource=use_resource)
    with tf.device("/job:worker"):
      ids, weights = tf.placeholder(tf.int32, [None]), tf.placeholder(tf.float32, [None])
      sums = embedding._sum_rows(parts_of_table(table), ids, ids, 4, weights)
      gradient, = tf.gradients(tf.square(sums), table)
    for each in (sums, gradient.values, gradient.indices, gradient.dense_shape):
      assert tf.DeviceSpec.from_string(each.device).task == 3 or "loc:@" in str(
        each.op.colocation_groups())


def test_the_part_of_an_id():
  with tf.Graph().as_default():
    part = embedding._part_of(tf.constant([-1, 0, 2, 3, 4, 5, 9]), [0, 3, 5])
    assert evaluate_parts(part).tolist() == [0, 0, 0, 1, 1, 2, 2]


def test_dividing_keeps_the_order():
  with tf.Graph().as_default():
    place = tf.constant([1, 0, 1, 1])
    divided = embedding._divide([tf.constant([4, 5, 6, 7]), None], place, 3)
    assert [other for _, other in divided] == [None] * 3
    values = evaluate_parts([one for one, _ in divided])
    assert [each.tolist() for each in values] == [[5], [4, 6, 7], []]
