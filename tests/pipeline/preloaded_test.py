from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.pipeline import preloaded, producers
from tf1ps.pipeline import shard as shard_lib

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")


@pytest.fixture(autouse=True)
def graph():
  with tf.Graph().as_default() as graph:
    tf.train.create_global_step()
    yield graph


def share(**settings):
  return shard_lib.Shard(**dict(dict(batch_size=2, epochs=1), **settings))


def rows(tensors, session):
  """The batches until the end, as lists; the session is closed."""
  found = []
  with session:
    while len(found) < 100:
      found.append(tf.nest.map_structure(lambda value: np.array(value).tolist(),
                                         session.run(tensors)))
  return found


SESSIONS = [tf.train.MonitoredTrainingSession, tf1ps.MonitoredTrainingSession]
X = np.arange(10, dtype=np.float32).reshape([5, 2])
Y = np.array(["a", "b", "c", "d", "e"])


def test_variables_are_in_no_collection_and_the_graph_holds_no_data(graph):
  values = preloaded.preloaded_variables(
    {"x": np.zeros([1000, 1000], np.float32), "y": np.arange(3)}
  )
  assert values["x"].shape.as_list() == [1000, 1000] and values["y"].dtype == tf.int64
  assert tf.global_variables() == [tf.train.get_global_step()]
  assert tf.local_variables() == tf.trainable_variables() == []
  assert graph.as_graph_def().ByteSize() < 10000


def test_a_session_of_one_s_own_loads_them_by_the_tables_initializer():
  value = preloaded.preloaded_variables(X)
  init = tf.tables_initializer()
  with tf.Session() as session:
    session.run(init)
    assert session.run(value).tolist() == X.tolist()


@pytest.mark.parametrize("make", SESSIONS)
def test_monitored_sessions_load_them_without_a_word(make):
  slices = producers.slice_input_producer(
    list(preloaded.preloaded_variables((X, Y))), 1, shuffle=False
  )
  found = rows(slices, make())
  assert [x for x, _ in found] == X.tolist()
  assert [y for _, y in found] == [b"a", b"b", b"c", b"d", b"e"]


class FailOnce(tf.train.SessionRunHook):
  """Fails after the second run as if a server had gone, once."""

  def __init__(self):
    self.runs = 0

  def after_run(self, run_context, run_values):
    self.runs += 1
    if self.runs == 2:
      raise tf.errors.AbortedError(None, None, "gone")


@pytest.mark.parametrize("make", SESSIONS)
def test_a_recovered_session_loads_them_again(make):
  batch = preloaded.preloaded_batches(share(), X[:, 0], shuffle=False)
  hook = FailOnce()
  # The run that failed is made again in a new session, which begins with the first row.
  assert rows(batch, make(hooks=[hook])) == [[0.0, 2.0], [0.0, 2.0], [4.0, 6.0], [8.0]]
  assert hook.runs == 5


@pytest.mark.parametrize("dtype", [np.uint8, np.float64, np.bool_, np.int32, np.float16])
def test_types(dtype):
  value = preloaded.preloaded_variables(np.arange(6).reshape([3, 2]).astype(dtype))
  assert value.dtype == tf.as_dtype(dtype)
  assert rows(preloaded.preloaded_batches(share(mode="eval"), np.arange(3).astype(dtype)),
              tf.train.MonitoredSession()) == [
    np.arange(2).astype(dtype).tolist(), np.arange(2, 3).astype(dtype).tolist()]


def test_batches_in_order_and_the_last_is_what_is_left():
  found = rows(preloaded.preloaded_batches(share(), {"x": X, "y": Y}, shuffle=False),
               tf.train.MonitoredSession())
  assert [batch["y"] for batch in found] == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
  assert found[2]["x"] == [[8.0, 9.0]]


def test_each_row_once_an_epoch_and_in_another_order():
  numbers = np.arange(50)
  found = rows(preloaded.preloaded_batches(share(batch_size=20, epochs=3), numbers, seed=1),
               tf.train.MonitoredSession())
  assert [len(batch) for batch in found] == [20] * 7 + [10]
  flat = sum(found, [])
  epochs = [flat[:50], flat[50:100], flat[100:]]
  assert all(sorted(epoch) == numbers.tolist() for epoch in epochs)
  assert epochs[0] != epochs[1] != epochs[2] and epochs[0] != sorted(epochs[0])


def test_drop_remainder_and_shapes_that_are_known():
  assert preloaded.preloaded_batches(share(epochs=None), X).shape.as_list() == [2, 2]
  assert preloaded.preloaded_batches(share(), X).shape.as_list() == [None, 2]
  found = rows(preloaded.preloaded_batches(share(), X, shuffle=False, drop_remainder=True),
               tf.train.MonitoredSession())
  assert found == [X[:2].tolist(), X[2:4].tolist()]


@pytest.mark.parametrize("settings, wanted", [
    (dict(index=1, count=2), [1, 3]),
    (dict(index=1, count=2, policy="records"), [1, 3]),
    (dict(index=1, count=2, policy="none"), [0, 1, 2, 3, 4]),
    (dict(mode="eval", epochs=7), [0, 1, 2, 3, 4]),
])
def test_workers_divide_the_rows(settings, wanted):
  mine = share(**settings)
  found = rows(preloaded.preloaded_batches(mine, np.arange(5), shuffle=mine.mode == "eval"),
               tf.train.MonitoredSession())
  assert sum(found, []) == wanted
  shard_lib.check_asked(mine)


def test_rows_of_this_worker_s_own_files_are_not_divided_again(tmp_path):
  for name in "ab":
    (tmp_path / name).write_text("")
  mine = share(index=1, count=2)
  assert len(mine.files(str(tmp_path / "*"))) == 1
  assert sum(rows(preloaded.preloaded_batches(mine, np.arange(3), shuffle=False),
                  tf.train.MonitoredSession()), []) == [0, 1, 2]


def test_all_is_on_the_worker_under_tensorflow_s_setter(graph):
  setter = tf.train.replica_device_setter(
    cluster={"ps": ["a:1"], "worker": ["b:1"]}, worker_device="/job:worker/task:0")
  with tf.device(setter):
    preloaded.preloaded_batches(share(epochs=2), X)
  variables = [op for op in graph.get_operations() if op.type in ("VarHandleOp", "VariableV2")]
  assert len(variables) == 3
  assert all(op.device.startswith("/job:worker/task:0") or op.name == "global_step"
             for op in variables)


@pytest.mark.parametrize(
  "make, error, message",
  [
    (lambda: preloaded.preloaded_variables([[1, 2]]), TypeError, "must be numpy arrays, got 1"),
    (
      lambda: preloaded.preloaded_batches(share(), (X, Y[:4])),
      ValueError,
      r"number of rows, got the shapes "
      r"\(5, 2\), \(4,\)",
    ),
    (
      lambda: preloaded.preloaded_batches(share(), np.ones([])),
      ValueError,
      "the same number of rows",
    ),
    (lambda: preloaded.preloaded_batches(share(), X[:0]), ValueError, "no row for worker 0 of 1"),
    (
      lambda: preloaded.preloaded_batches(share(index=2, count=3), X[:2]),
      ValueError,
      "no row for worker 2 of 3: the preloaded arrays have 2 rows",
    ),
  ],
)
def test_bad_input_is_refused(make, error, message):
  with pytest.raises(error, match=message):
    make()


@pytest.mark.slow
def test_an_array_of_more_than_two_gigabytes():
  array = np.zeros([(1 << 31) // 1024 + 1, 1024], np.uint8)
  array[-1] = 7
  last = preloaded.preloaded_variables(array)[-1]
  with tf.train.MonitoredSession() as session:
    assert session.run(last).tolist() == [7] * 1024
