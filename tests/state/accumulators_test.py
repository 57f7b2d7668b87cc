from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tf1ps.compat import worker_service
from tf1ps.state import accumulators, queue_errors, queues
from tf1ps.state.accumulator_steps import Counts

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

_numbers = itertools.count()


class Client:
  """A session with what `build()` builds in its graph."""

  def __init__(self, target, device, container, build):
    with tf.Graph().as_default() as graph, tf.device(device), graph.container(container):
      self.it = build()
    self.session = tf.Session(target, graph=graph)

  def __getattr__(self, name):
    """The methods that run something, with this session."""
    method = getattr(self.it, name)
    return lambda *args, **kwargs: method(self.session, *args, **kwargs)

  def run(self, build):
    """Runs what build() builds in the graph."""
    with self.session.graph.as_default():
      return self.session.run(build())


class Clients:
  """Makes clients of a container of the test's own; `with` closes their sessions."""

  def __init__(self, target, device):
    self.container, self.device = "a%d" % next(_numbers), device
    self._target, self._made = target, []

  def __call__(self, build):
    self._made.append(Client(self._target, self.device, self.container, build))
    return self._made[-1]

  def __enter__(self):
    return self

  def __exit__(self, *error):
    for one in self._made:
      one.session.close()


@pytest.fixture
def shared(ps):
  """Makes clients of the ps."""
  with Clients("grpc://" + ps.address, ps.name) as clients:
    yield clients


@pytest.fixture(params=["direct", "grpc"])
def client(request):
  """Makes clients of the ps, or of this process."""
  if request.param == "grpc":
    yield request.getfixturevalue("shared")
  else:
    with Clients("", None) as clients:
      yield clients


@pytest.fixture(params=["v1", "v2"])
def control_flow(request):
  """Has the test run under both of TensorFlow's control flows."""
  was = tf.control_flow_v2_enabled()
  (tf.enable_control_flow_v2 if request.param == "v2" else tf.disable_control_flow_v2)()
  yield
  (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


def dense(shape=(2,), dtype=tf.float32, name="g", **options):
  return lambda: accumulators.Accumulator(dtype, shape, name, **options)


def sparse(shape=(10,), dtype=tf.float32, name="g", **options):
  return lambda: accumulators.SparseAccumulator(dtype, shape, name, **options)


def rows_of(taken):
  return taken.indices.tolist(), taken.values.tolist()


# Dense.


def test_take_averages_the_n_oldest_and_leaves_the_others(client, control_flow):
  ours = client(dense())
  for i in (1, 3, 8, 20):
    assert ours.apply([i, 10 * i])
  assert ours.take(2).tolist() == [2.0, 20.0]
  assert (ours.num_accumulated(), ours.global_step()) == (2, 1)
  assert ours.take(1).tolist() == [8.0, 80.0]
  assert ours.take(1).tolist() == [20.0, 200.0]
  assert (ours.num_accumulated(), ours.global_step()) == (0, 3)


def test_stock_averages_all_that_has_arrived(client):
  stock = client(lambda: tf.ConditionalAccumulator(tf.float32, [], shared_name="stock"))
  for i in (1, 3, 8, 20):
    stock.run(lambda value=float(i): stock.it.apply_grad(value))
  assert stock.run(lambda: stock.it.take_grad(2)) == 8.0
  assert stock.run(lambda: stock.it.num_accumulated()) == 0


def test_a_stale_gradient_is_dropped_and_counted_by_worker(client):
  ours = client(dense())
  assert ours.apply([1, 1], 0, worker=0) and ours.apply([3, 3], 0, worker=1)
  ours.take(2)
  assert ours.apply([1, 1], 0, worker=1) is False
  assert ours.apply([5, 5], 1, worker=0) is True
  assert ours.apply([5, 5], 0) is False
  assert ours.apply([7, 7], 2, worker=12) is True
  assert ours.counts() == Counts(4, 2, 0, {0: (2, 0, 0), 1: (1, 1, 0), 12: (1, 0, 0)})
  assert ours.take(2).tolist() == [6.0, 6.0]


def test_stock_drops_without_a_word(client):
  stock = client(lambda: tf.ConditionalAccumulator(tf.float32, [], shared_name="stock"))
  stock.run(lambda: stock.it.set_global_step(2))
  assert stock.run(lambda: stock.it.apply_grad(1.0, local_step=1)) is None
  assert stock.run(lambda: stock.it.num_accumulated()) == 0


def test_the_time_step_can_be_set(client):
  ours = client(dense())
  assert ours.global_step() == 0
  ours.set_global_step(5)
  assert ours.global_step() == 5
  assert not ours.apply([1, 1], 4) and ours.apply([1, 1], 5)
  ours.run(lambda: ours.it.try_set_global_step(7))
  assert ours.global_step() == 7 and not ours.apply([1, 1], 6)
  assert ours.take(1).tolist() == [1, 1] and ours.global_step() == 8


def test_a_take_that_timed_out_takes_nothing(client):
  ours = client(dense())
  ours.apply([2, 2])
  with pytest.raises(queue_errors.QueueEmpty, match=r"take\(2\) on Accumulator g") as raised:
    ours.take(2, timeout=0.02)
  status = raised.value.status
  assert (status.requested, status.present, status.device) == (2, 1, client.device or "")
  assert (ours.num_accumulated(), ours.global_step()) == (1, 0)
  assert ours.apply([4, 4]) and ours.take(2, timeout=0).tolist() == [3.0, 3.0]


def test_a_capacity_is_kept(client):
  ours = client(dense(capacity=2))
  assert ours.apply([1, 1], worker=0) and ours.apply([3, 3], worker=1)
  with pytest.raises(queue_errors.QueueFull, match=" is full after .* present 2, capacity 2"):
    ours.apply([5, 5], worker=1)
  assert ours.counts() == Counts(2, 0, 1, {0: (1, 0, 0), 1: (1, 0, 1)})
  assert ours.take(2).tolist() == [2.0, 2.0]
  assert ours.apply([5, 5], 1)
  with pytest.raises(ValueError, match="with a capacity of 2 would never end"):
    ours.take(3)


@pytest.mark.parametrize("dtype", [tf.float16, tf.float64])
def test_other_types_and_scalars(client, dtype):
  ours = client(dense((), dtype))
  for value in (1, 2, 6):
    ours.apply(value)
  mean = ours.take(3)
  assert mean == 3.0 and mean.dtype == dtype.as_numpy_dtype


def test_a_sum_above_float16_has_a_mean(client):
  ours, rows = client(dense(dtype=tf.float16)), client(sparse((3, 1), tf.float16, "rows"))
  for value in (40000, 50000, 60000):
    ours.apply([value, -value])
    rows.apply([2], [[value]])
  assert ours.take(3).tolist() == [49984.0, -49984.0]  # the nearest number to 50,000 in float16
  assert rows_of(rows.take(3)) == ([2], [[49984.0]])


def test_a_training_step_averages_on_the_ps(client, control_flow):
  """Two replicas whose gradients never pass through the client: B40's targets."""
  def build():
    ours = dense(shape=())()
    variable = tf.get_variable("w", initializer=0.0, use_resource=True)
    target, local_step = tf.placeholder(tf.float32, []), tf.placeholder(tf.int64, [])
    applied = ours.try_apply(0.5 * (variable - target), local_step)
    taken = ours.try_take(2)
    update = tf.cond(taken.taken, lambda: variable.assign_sub(taken.mean).op, tf.no_op)
    return variable, target, local_step, applied, taken, update

  both = client(build)
  variable, target, local_step, applied, taken, update = both.it
  both.session.run(variable.initializer)
  seen = []
  for step in range(5):
    for value, enough in ((1.0, False), (3.0, True)):
      assert both.session.run(applied, {target: value, local_step: step}).taken
      result, _ = both.session.run([taken, update])
      assert (result.taken, result.present) == (enough, 1 + enough)
    seen.append(float(both.session.run(variable)))
  assert seen == [1.0, 1.5, 1.75, 1.875, 1.9375]
  assert both.session.run(taken).mean == 0.0


def test_operations_say_what_became_of_a_gradient(client):
  ours = client(dense(capacity=1))
  results = [tuple(ours.run(lambda: ours.it.try_apply([1., 1.], 0, 3))) for _ in range(2)]
  ours.set_global_step(1)
  results.append(tuple(ours.run(lambda: ours.it.try_apply([1., 1.]))))
  assert results == [(True, False, False), (False, False, True), (False, True, False)]
  assert ours.counts() == Counts(1, 1, 1, {3: (1, 0, 1)})
  assert ours.run(lambda: ours.it.try_take(0)).taken == False  # noqa: E712


def test_sessions_share_what_has_a_name(shared):
  first, second, private = shared(dense()), shared(dense()), shared(dense(name=None))
  first.apply([1, 1])
  assert (second.num_accumulated(), private.num_accumulated()) == (1, 0)
  private.apply([2, 2])
  assert second.take(1).tolist() == [1, 1] and private.take(1).tolist() == [2, 2]
  assert first.global_step() == 1


@pytest.mark.parametrize("other, said", [
  (dense(shape=(3,)), r"shape is \[2\] there and \[3\] here"),
  (dense(dtype=tf.float64), '"float32" there and "float64" here'),
  (dense(capacity=3), "capacity is -1 there and 3 here"),
  (sparse(shape=(2,)), '"Accumulator" there and "SparseAccumulator" here'),
])
def test_another_accumulator_under_the_name_is_refused(shared, other, said):
  shared(dense()).apply([1, 1])
  with pytest.raises(queue_errors.QueueMismatch, match=said):
    shared(other).num_accumulated()


def test_a_queue_of_the_same_name_is_another_thing(shared):
  queue = shared(lambda: queues.FIFOQueue(3, tf.int32, [], shared_name="g"))
  queue.put(1)
  ours = shared(dense())
  ours.apply([1, 1])
  assert (queue.get(timeout=0), ours.num_accumulated()) == (1, 1)


def test_a_reset_is_noticed_and_a_new_session_begins_anew(shared, ps):
  one = shared(dense())
  step = one.run(lambda: one.it.try_take(1))
  one.apply([1, 1])
  worker_service.cleanup_all(ps.address, [shared.container], 5.0)
  for call in (lambda: one.apply([1, 1]), lambda: one.take(1), one.counts, one.num_accumulated):
    with pytest.raises(queue_errors.QueueReset, match="container %s was reset" % shared.container):
      call()
  with pytest.raises(tf.errors.InvalidArgumentError, match="was reset"):
    one.run(lambda: one.it.try_take(1))
  assert not step.taken
  again = shared(dense())
  assert again.counts() == Counts(0, 0, 0, {}) and again.apply([1, 1])


@pytest.mark.slow
def test_every_gradient_is_averaged_once(shared):
  """Three that apply and two that take with short limits: the sums are equal."""
  appliers, takers = [shared(dense(())) for _ in range(3)], [shared(dense(())) for _ in range(2)]
  taken, over = [], threading.Event()

  def apply(one, first):
    for i in range(40):
      one.apply(first + i, 10 ** 9)

  def take(one):
    while True:
      last = over.is_set()
      try:
        taken.append(3 * float(one.take(3, timeout=0.003)))
      except queue_errors.QueueEmpty:
        if last:
          return

  threads = [threading.Thread(target=apply, args=(one, 100 * i)) for i, one in enumerate(appliers)]
  waiting = [threading.Thread(target=take, args=(one,)) for one in takers]
  for thread in threads + waiting:
    thread.start()
  for thread in threads:
    thread.join()
  over.set()
  for thread in waiting:
    thread.join()
  assert len(taken) == 40 and round(sum(taken)) == sum(100 * i + j for i in range(3)
                                                       for j in range(40))
  assert takers[0].global_step() == 40


@pytest.mark.parametrize("build, said", [
  (dense(shape=None), "must be fully known, got <unknown>"),
  (dense(shape=(None, 2)), "must be fully known, got"),
  (dense(capacity=0), "capacity of Accumulator must be a number of gradients above 0"),
  (dense(dtype=tf.int32), "dtype of Accumulator must be floating-point or complex, .* got int32"),
  (sparse(dtype=tf.int64), "dtype of SparseAccumulator must be floating-point .* got int64"),
  (sparse(shape=()), "known but for its first dimension"),
  (sparse(shape=(3, None)), "known but for its first dimension"),
])
def test_arguments_are_checked(build, said):
  with tf.Graph().as_default(), pytest.raises(ValueError, match=said):
    build()


def test_calls_are_checked():
  with tf.Graph().as_default(), tf.Session() as session:
    ours, rows = dense()(), sparse(name="h")()
    for n in (0, True, 1.5):
      with pytest.raises(ValueError, match="n must be a number of gradients"):
        ours.take(session, n)
    with pytest.raises(ValueError, match="0 or more, got None"):
      ours.take(session, 1, timeout=None)
    with pytest.raises(ValueError, match="worker must be an index, 0 or more, got -1"):
      ours.apply(session, [1, 1], worker=-1)
    with pytest.raises(ValueError, match="Cannot feed value of shape"):
      ours.apply(session, [1, 1, 1])
    with pytest.raises(ValueError, match="are incompatible|are not compatible"):
      ours.try_apply([1.0])
    with pytest.raises(ValueError, match=r"from 0 to 9, got \[10\]"):
      rows.apply(session, [10], [1.0])
    with pytest.raises(ValueError, match="as many rows as indices"):
      rows.apply(session, [1, 2], [1.0])


# Sparse.


def test_rows_are_divided_by_the_number_of_gradients(client, control_flow):
  ours = client(sparse())
  for _ in range(2):
    assert ours.apply([3, 0], [2, 1], 5) and ours.apply([5, 3], [6, 4], 5)
  assert rows_of(ours.take(2)) == ([0, 3, 5], [0.5, 3.0, 3.0])
  assert rows_of(ours.take(2, by_row=True)) == ([0, 3, 5], [1.0, 3.0, 6.0])


def test_stock_divides_each_row_by_its_own_count(client):
  stock = client(lambda: tf.SparseConditionalAccumulator(tf.float32, [10], shared_name="stock"))
  for indices, values in (([0, 3], [1., 2.]), ([3, 5], [4., 6.])):
    stock.run(lambda rows=(indices, values): stock.it.apply_grad(*rows))
  indices, values, _ = stock.run(lambda: stock.it.take_grad(2))
  assert (list(indices), list(values)) == ([0, 3, 5], [1.0, 3.0, 6.0])


def test_rows_of_any_number_and_shape(client):
  ours = client(sparse(shape=(None, 2)))
  ours.apply([4, 4, 1], [[1, 2], [3, 4], [5, 6]])  # an index may occur twice
  ours.apply([], np.zeros([0, 2]))
  ours.apply([1000000], [[9, 9]])
  assert ours.num_accumulated() == 3
  assert rows_of(ours.take(2)) == ([1, 4], [[2.5, 3.0], [2.0, 3.0]])
  assert rows_of(ours.take(1, by_row=True)) == ([1000000], [[9.0, 9.0]])
  ours.apply([4, 4], [[1, 2], [3, 4]], 2)
  assert rows_of(ours.take(1, by_row=True)) == ([4], [[4.0, 6.0]])


def test_sparse_gradients_are_dropped_counted_and_waited_for_too(client):
  ours = client(sparse(capacity=1))
  ours.set_global_step(1)
  assert ours.apply([0], [1], 0, worker=2) is False and ours.apply([0], [1], 1)
  with pytest.raises(queue_errors.QueueFull, match="SparseAccumulator"):
    ours.apply([0], [1], 1)
  assert ours.counts() == Counts(1, 1, 1, {2: (0, 1, 0)})
  ours.take(1)
  with pytest.raises(queue_errors.QueueEmpty):
    ours.take(1, timeout=0)
  assert ours.global_step() == 2


def test_a_sparse_training_step_averages_on_the_ps(client, control_flow):
  def build():
    ours = sparse(shape=(3, 2))()
    variable = tf.get_variable("w", initializer=np.ones([3, 2], np.float32), use_resource=True)
    index = tf.placeholder(tf.int32, [1])
    loss = tf.reduce_sum(tf.gather(variable, index))
    applied = ours.try_apply(tf.gradients(loss, variable)[0])
    with tf.control_dependencies([applied.taken]):
      taken = ours.try_take(2)
    with tf.control_dependencies([tf.scatter_sub(variable, taken.mean.indices, taken.mean.values)]):
      return variable, index, tf.identity(taken.taken)

  one = client(build)
  variable, index, taken = one.it
  one.session.run(variable.initializer)
  assert [bool(one.session.run(taken, {index: [i]})) for i in (0, 2)] == [False, True]
  assert one.session.run(variable).tolist() == [[0.5, 0.5], [1.0, 1.0], [0.5, 0.5]]
