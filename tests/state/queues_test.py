from __future__ import annotations

import dataclasses
import inspect
import itertools
import queue as python_queue
import re
import threading
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import cluster_tasks, harness
from tf1ps.cluster import server as server_lib
from tf1ps.cluster import session as session_lib
from tf1ps.cluster.description import Cluster
from tf1ps.compat import worker_service
from tf1ps.state import containers, pinning, queue_errors, queue_steps, queues, reset

KINDS = ["FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue", "PriorityQueue"]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def ps(forks):
  """Two stock ps; returns their tasks."""
  with cluster_tasks.stock_ps(forks, 2) as tasks:
    yield tasks


def arguments(kind, capacity=10, least=0, shape=(), names=None, dtype=tf.int32):
  """The arguments of a queue of that kind whose elements have one value, beside a priority."""
  given = {"capacity": capacity, "names": names}
  given["types" if kind == "PriorityQueue" else "dtypes"] = dtype
  if shape is not None:
    given["shapes"] = [shape]
  if kind == "RandomShuffleQueue":
    given.update(min_after_dequeue=least, seed=7)
  return given


@pytest.mark.parametrize("kind", KINDS)
def test_under_eager_execution_it_is_tensorflows_queue(kind):
  made = []

  def in_python(value):
    made.append(getattr(tf1ps, kind)(**arguments(kind)))
    made[0].enqueue([tf.constant(0, tf.int64), value] if kind == "PriorityQueue" else value)
    return made[0].size()

  with tf.Graph().as_default(), tf.Session() as session:
    assert session.run(tf.py_function(in_python, [5], tf.int32)) == 1
  assert type(made[0]) is getattr(tf.queue, kind) and isinstance(made[0], getattr(tf1ps, kind))



class Client:
  """A session with one queue, whose elements are written as numbers."""

  def __init__(self, kind, target, device, container, shared_name="q", **options):
    self.kind = kind
    graph = tf.Graph()
    with graph.as_default():
      self.queue = getattr(queues, kind)(
        shared_name=shared_name, device=device, container=container, **arguments(kind, **options))
    config = tf.ConfigProto()
    if target:  # or else most of the ps's work would be to make graphs faster
      config.graph_options.rewrite_options.disable_meta_optimizer = True
    self.session = tf.Session(target, graph, config)

  def put(self, *numbers, **options):
    """Puts numbers in, which are their own priorities."""
    values = np.array(numbers, np.int32)
    self.queue.put(self.session, [values, values] if self.kind == "PriorityQueue" else values,
                   many=True, **options)

  def get(self, *args, **options):
    """Gets a number, or the list of several, sorted where their order is random."""
    got = self.queue.get(self.session, *args, **options)
    if self.kind == "PriorityQueue":
      assert np.all(got[0] == got[1])
      got = got[1]
    if self.kind == "RandomShuffleQueue" and np.ndim(got):
      got = np.sort(got)
    return got.tolist()

  def run(self, build):
    """Runs what build() builds in the queue's graph."""
    with self.session.graph.as_default():
      return self.session.run(build())


class Calling:
  """Calls a function in a thread; the end of the block waits for its end, and keeps its error."""

  def __init__(self, function):
    self.error = None
    self._function = function
    self._thread = threading.Thread(target=self._run, daemon=True)

  def _run(self):
    try:
      self._function()
    except Exception as error:
      self.error = error

  def __enter__(self):
    self._thread.start()
    return self

  def __exit__(self, *error):
    self._thread.join(60)
    assert not self._thread.is_alive()


def make_clients(task):
  """Makes clients of a container of the test's own, in this process or of a ps; closes them."""
  made = []

  def make(kind, **options):
    target, device = ("grpc://" + task.address, task.name) if task else ("", None)
    made.append(Client(kind, target, device, make.container, **options))
    return made[-1]

  make.task = task
  make.container = "t%d" % next(_numbers)
  yield make
  for one in made:
    one.session.close()


@pytest.fixture(params=["direct", "grpc"])
def client(request):
  """Makes clients in this process, or of a ps."""
  yield from make_clients(
    request.getfixturevalue("ps")[0] if request.param == "grpc" else None)


def on_both(kinds):
  """Has a test try these kinds on a ps and, as the rest is one, only the first in this process."""
  return pytest.mark.parametrize(
    "client, kind", [("direct", kinds[0])] + [("grpc", kind) for kind in kinds],
    indirect=["client"])


@pytest.fixture
def shared(ps):
  """Makes clients of the ps alone, which can share."""
  yield from make_clients(ps[0])


# Drop-ins.


def uses(made):
  """The operations that a user builds on a queue: (type, attributes) of each."""
  value = [[1, 2]] * len(made.dtypes)
  ops = [made.enqueue([1] * len(value)), made.enqueue_many(value), made.size().op,
         made.is_closed().op, made.close(), made.close(cancel_pending_enqueues=True)]
  for result in (made.dequeue(), made.dequeue_many(2), made.dequeue_up_to(2)):
    ops.append((result[0] if isinstance(result, list) else result).op)
  ops.append(made.queue_ref.op)
  return [(op.type, {name: str(value) for name, value in op.node_def.attr.items()
                     if name != "_class"}) for op in ops]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_arguments_and_methods_build_the_same_operations(kind):
  ours, stock = getattr(queues, kind), getattr(tf.queue, kind)
  with tf.Graph().as_default():
    expected = uses(stock(**arguments(kind)))
  with tf.Graph().as_default():
    made = ours(**arguments(kind))
    assert uses(made) == expected
  assert isinstance(made, stock)
  parameters = list(inspect.signature(ours.__init__).parameters.values())
  added = [p.name for p in parameters if p.kind == p.KEYWORD_ONLY]
  assert added == ["device", "container"]
  assert [(p.name, p.default) for p in parameters if p.name not in added] == [
    (p.name, p.default) for p in inspect.signature(stock.__init__).parameters.values()]


def test_queues_of_one_form_import_their_operations():
  """To build them takes Python several times as long as to import them."""
  queue_steps._template.cache_clear()
  with tf.Graph().as_default() as graph:
    counts, made = [0], []
    for name in "abc":
      made.append(queues.FIFOQueue(5 + len(made), [tf.float32, tf.int32], [[3], []],
                                   shared_name=name))
      counts.append(len(graph.get_operations()))
    assert queue_steps._template.cache_info().misses == 1
    assert max(after - before for before, after in zip(counts, counts[1:])) <= 115
    made[0].close()
    assert len(graph.get_operations()) - counts[-1] <= 36


@on_both(KINDS)
def test_tensorflows_own_methods_work(client, kind):
  one = client(kind)
  many = [[3, 1, 2]] * len(one.queue.dtypes)
  one.run(lambda: one.queue.enqueue_many(many))
  assert one.run(one.queue.size) == 3
  got = one.run(lambda: one.queue.dequeue_many(3))
  got = got[1] if kind == "PriorityQueue" else got
  assert sorted(got) == [1, 2, 3]
  assert not one.run(one.queue.is_closed)
  one.run(one.queue.close)
  assert one.run(one.queue.is_closed)


def test_from_list_chooses_one():
  with tf.Graph().as_default(), tf.Session() as session:
    both = [queues.FIFOQueue(3, tf.int32, [()], name=name) for name in ("a", "b")]
    both[1].put(session, 5)
    assert session.run(queues.FIFOQueue.from_list(1, both).dequeue()) == 5


# get and put.


@on_both(KINDS)
def test_one_many_and_up_to(client, kind):
  one = client(kind)
  one.put(4)
  assert one.get() == 4
  one.put(1, 2, 3, 4, 5)
  low = one.get(2)
  assert len(low) == 2
  high = one.get(9, up_to=True)
  assert sorted(low + high) == [1, 2, 3, 4, 5]
  if kind != "RandomShuffleQueue":
    assert low == [1, 2]
  with pytest.raises(queue_errors.QueueEmpty):
    one.get(1, up_to=True, timeout=0)


@on_both(["FIFOQueue", "PaddingFIFOQueue"])
def test_order_is_kept(client, kind):
  one = client(kind)
  one.put(3, 1)
  one.put(2)
  assert [one.get(), one.get(2)] == [3, [1, 2]]


def test_the_lowest_priority_comes_first(client):
  one = client("PriorityQueue")
  one.put(3, 1)
  one.put(2)
  assert [one.get(2), one.get()] == [[1, 2], 3]


@on_both(KINDS)
def test_components_with_names(client, kind):
  named = ["when", "what"] if kind == "PriorityQueue" else ["what"]
  one = client(kind, names=named)
  element = {name: 7 for name in named}
  one.queue.put(one.session, element)
  assert one.queue.get(one.session) == element
  one.queue.put(one.session, {name: [7, 8] for name in named}, many=True)
  got = one.queue.get(one.session, 2)
  assert sorted(got) == sorted(named) and sorted(got["what"]) == [7, 8]
  for wrong in ({"who": 7}, 7, dict(element, more=1)):
    with pytest.raises(ValueError, match="takes a dict with .*what"):
      one.queue.put(one.session, wrong)


def test_several_components_of_several_types(client):
  one = client("FIFOQueue")
  with one.session.graph.as_default():
    made = queues.FIFOQueue(4, [tf.string, tf.float32], [(), (2,)])
  made.put(one.session, ["a", [0.5, 1.5]])
  made.put(one.session, (["b", "c"], [[1, 2], [3, 4]]), many=True)
  text, numbers = made.get(one.session)
  assert (text, numbers.tolist()) == (b"a", [0.5, 1.5])
  texts, numbers = made.get(one.session, 2)
  assert (texts.tolist(), numbers.tolist()) == ([b"b", b"c"], [[1, 2], [3, 4]])
  with pytest.raises(ValueError, match="has 2 components"):
    made.put(one.session, "a")


@on_both(["FIFOQueue", "RandomShuffleQueue"])
def test_without_shapes_it_takes_one_at_a_time(client, kind):
  one = client(kind, shape=None)
  one.queue.put(one.session, [1, 2, 3])
  one.queue.put(one.session, [[4, 4], [5, 5]], many=True)
  assert sorted(one.queue.get(one.session).tolist() for _ in range(3)) == [
    [1, 2, 3], [4, 4], [5, 5]]
  with pytest.raises(queue_errors.QueueEmpty):
    one.get(timeout=0)
  with pytest.raises(ValueError, match="needs a queue whose shapes are known"):
    one.get(2)
  with pytest.raises(ValueError, match="needs a queue whose shapes are known"):
    one.run(lambda: one.queue.try_dequeue_many(2))


def test_padding_fills_with_zeros(client):
  one = client("PaddingFIFOQueue", shape=(None,))
  for element in ([1], [2, 3, 4], [5, 6]):
    one.queue.put(one.session, element)
  assert one.get(2) == [[1, 0, 0], [2, 3, 4]]
  assert one.get() == [5, 6]


def test_min_after_dequeue_stays_until_the_end(client):
  one = client("RandomShuffleQueue", least=2)
  one.put(1, 2, 3)
  with pytest.raises(queue_errors.QueueEmpty) as raised:
    one.get(2, timeout=0)
  assert raised.value.status.present == 1
  assert len(one.get(5, up_to=True)) == 1
  with pytest.raises(queue_errors.QueueEmpty):
    one.get(timeout=0)
  one.run(one.queue.close)
  assert len(one.get(2)) == 2
  with pytest.raises(queue_errors.QueueEnded):
    one.get()


@on_both(KINDS)
def test_a_batch_is_put_whole_or_not_at_all(client, kind):
  one = client(kind)
  one.put(*range(8))
  began = time.monotonic()
  with pytest.raises(queue_errors.QueueFull):
    one.put(8, 9, 10, timeout=0.05)
  assert time.monotonic() - began >= 0.05
  assert one.run(one.queue.size) == 8
  one.put(8, 9)
  assert one.get(10) == list(range(10))


def test_a_queue_without_a_limit(client):
  one = client("FIFOQueue", capacity=-1)
  one.put(*range(2000))
  assert one.get(2000) == list(range(2000))
  with pytest.raises(queue_errors.QueueEmpty, match="present 0, capacity unlimited, open"):
    one.get(timeout=0)


def test_an_empty_batch_is_put_at_once(client):
  one = client("FIFOQueue", capacity=1)
  one.put(1)
  one.put()
  assert one.run(one.queue.size) == 1


@on_both(KINDS)
def test_drain(client, kind):
  one = client(kind)
  assert one.queue.drain(one.session) == []
  one.put(1, 2, 3)
  got = one.queue.drain(one.session)
  assert sorted(element[1] if kind == "PriorityQueue" else element for element in got) == [1, 2, 3]
  one.put(4)
  one.run(one.queue.close)
  assert len(one.queue.drain(one.session)) == 1
  assert one.queue.drain(one.session) == []


def test_drain_of_an_open_shuffle_queue_leaves_what_tensorflow_keeps(shared):
  one = shared("RandomShuffleQueue", least=2)
  one.put(1, 2, 3, 4, 5)
  first = one.queue.drain(one.session)
  assert len(first) == 3 and one.run(one.queue.size) == 2
  one.run(one.queue.close)
  assert sorted(first + one.queue.drain(one.session)) == [1, 2, 3, 4, 5]
  assert one.run(one.queue.size) == 0


# Operations that never block.


@pytest.mark.slow
@on_both(KINDS)
def test_try_dequeue_many(client, kind):
  one = client(kind)
  one.put(1, 2, 3)
  n = len(one.queue.dtypes)

  def take(count, **options):
    taken = one.run(lambda: one.queue.try_dequeue_many(count, **options))
    components = taken.components if n > 1 else [taken.components]
    assert [len(component) for component in components] == [taken.count] * n
    return sorted(components[-1]), taken.present, taken.closed

  assert take(4) == ([], 3, False)
  first, present, _ = take(2)
  assert len(first) == 2 and present == 3
  rest, present, closed = take(4, up_to=True)
  assert (sorted(first + rest), present, closed) == ([1, 2, 3], 1, False)
  one.put(4)
  one.run(one.queue.close)
  assert take(2) == ([], 1, True)
  assert take(2, up_to=True) == ([4], 1, True)
  assert take(2, up_to=True) == ([], 0, True)


@pytest.mark.slow
@on_both(KINDS)
def test_try_enqueue_many(client, kind):
  one = client(kind, capacity=4)
  n = len(one.queue.dtypes)

  def put(*numbers, **options):
    vals = [list(numbers)] * n
    return tuple(one.run(lambda: one.queue.try_enqueue_many(
      vals if n > 1 else vals[0], **options)))

  assert put(0, 1, 2) == (3, 0, False)
  assert put(3, 4) == (0, 3, False)
  assert put(3, 4, up_to=True) == (1, 3, False)
  assert put(5, up_to=True) == (0, 4, False)
  assert one.get(4) == [0, 1, 2, 3]
  one.run(one.queue.close)
  assert put(6) == put(6, up_to=True) == (0, 0, True)


def test_what_is_built_has_shapes_and_dtypes():
  with tf.Graph().as_default():
    made = queues.FIFOQueue(3, [tf.int32, tf.string], [(2,), ()], names=["a", "b"])
    taken = made.try_dequeue_many(2)
    assert {name: (c.dtype, c.shape.as_list()) for name, c in taken.components.items()} == {
      "a": (tf.int32, [None, 2]), "b": (tf.string, [None])}
    put = made.try_enqueue_many({"a": [[1, 2]], "b": ["x"]})
    for result in (taken, put):
      assert (result.count.dtype, result.present.dtype, result.closed.dtype) == (
        tf.int32, tf.int32, tf.bool)


# What is refused.


def test_what_get_refuses(client):
  one = client("FIFOQueue")
  for n in (0, -1, 1.5, True):
    with pytest.raises(ValueError, match="n must be a number of elements above 0"):
      one.get(n)
  with pytest.raises(ValueError, match=r"get\(11\) from a queue with a capacity of 10"):
    one.get(11)
  for timeout in (-1, float("nan")):
    with pytest.raises(ValueError, match="timeout must be a number of seconds"):
      one.get(timeout=timeout)
  for n in (0, -2):
    with pytest.raises(ValueError, match="n must be a number of elements above 0"):
      one.run(lambda n=n: one.queue.try_dequeue_many(n))


def test_what_put_refuses(client):
  one = client("FIFOQueue", shape=(2,))
  for value in (1, [1, 2, 3], [[1, 2], [3, 4]]):
    with pytest.raises(ValueError, match=r"takes elements of shape \(2,\), got"):
      one.queue.put(one.session, value)
  with pytest.raises(ValueError, match=r"put\(11\) into a queue with a capacity of 10"):
    one.queue.put(one.session, np.zeros([11, 2], np.int64), many=True)
  with pytest.raises(ValueError, match="timeout must be a number of seconds"):
    one.queue.put(one.session, [1, 2], timeout=-1)
  with pytest.raises(ValueError, match="first dimension"):
    one.queue.put(one.session, 5, many=True)
  for value in ([1, 1.7], [np.int64(2 ** 40 + 5), 1], np.float64([1, 2])):
    with pytest.raises(ValueError, match="takes int32, which cannot hold"):
      one.queue.put(one.session, value)
  with pytest.raises(ValueError):
    one.run(lambda: one.queue.try_enqueue_many([[1, 2, 3]]))
  two = client("PriorityQueue", shared_name="other")
  with pytest.raises(ValueError, match="first dimensions"):
    two.queue.put(two.session, [[1, 2], [1]], many=True)
  assert one.run(one.queue.size) == two.run(two.queue.size) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_capacity_in_which_nothing_would_fit_is_refused(kind):
  with tf.Graph().as_default() as graph:
    for capacity in (0, 2.5, True):
      with pytest.raises(ValueError, match="capacity of %s 'q' must be a number" % kind):
        getattr(queues, kind)(shared_name="q", **arguments(kind, capacity=capacity))
    assert not [op for op in graph.get_operations() if op.type == kind + "V2"]


def test_a_floor_that_is_no_lower_than_the_capacity_is_refused():
  with tf.Graph().as_default():
    with pytest.raises(ValueError, match="min_after_dequeue of .* below its capacity of 3, got 3"):
      queues.RandomShuffleQueue(3, 3, tf.int32)


# Why nothing came.


@on_both(KINDS)
def test_the_end_a_cancellation_and_a_timeout_have_types_of_their_own(client, kind):
  one = client(kind, shared_name="ends", capacity=2)
  other = client(kind, shared_name="is cancelled")
  with pytest.raises(queue_errors.QueueEmpty) as empty:
    one.get(timeout=0)
  one.put(1, 2)
  with pytest.raises(queue_errors.QueueFull) as full:
    one.put(3, timeout=0)
  assert isinstance(empty.value, python_queue.Empty) and isinstance(full.value, python_queue.Full)
  one.run(one.queue.close)
  other.put(1)
  other.run(lambda: other.queue.close(cancel_pending_enqueues=True))
  for closed, error in ((one, queue_errors.QueueEnded), (other, queue_errors.QueueCancelled)):
    # Without a timeout, and at once.
    with pytest.raises(error) as raised_by_put:
      closed.put(3)
    assert closed.get(2, up_to=True)
    with pytest.raises(error) as raised_by_get:
      closed.get(2)
    assert type(raised_by_put.value) is type(raised_by_get.value) is error
  assert not issubclass(queue_errors.QueueEnded, queue_errors.QueueTimeout)
  assert not issubclass(queue_errors.QueueReset, queue_errors.QueueEnded)


def test_an_error_says_all_that_there_is_to_say(client):
  one = client("FIFOQueue", shared_name="numbers")
  where = re.escape(one.queue.device or "the session's default device")
  one.put(1, 2, 3)
  began = time.monotonic()
  with pytest.raises(queue_errors.QueueEmpty) as raised:
    one.get(4, timeout=0.02)
  passed = time.monotonic() - began
  assert re.fullmatch(
    r"get\(4\) on FIFOQueue numbers at %s timed out after \d+\.\d{3} s: requested 4, present 3, "
    "capacity 10, open" % where, str(raised.value))
  status = raised.value.status
  assert status[:7] == ("FIFOQueue numbers", one.queue.device, "get(4)", 4, 3, 10, False)
  assert 0.02 <= status.elapsed <= passed
  with pytest.raises(queue_errors.QueueFull) as raised:
    one.put(*range(8), timeout=0)
  assert re.fullmatch(
    r"put\(8\) on FIFOQueue numbers at %s timed out after \d+\.\d{3} s: requested 8, present 3, "
    "capacity 10, open" % where, str(raised.value))
  one.run(one.queue.close)
  with pytest.raises(queue_errors.QueueEnded) as raised:
    one.get(4)
  assert re.fullmatch(
    r"get\(4\) on FIFOQueue numbers at %s has ended after \d+\.\d{3} s: requested 4, present 3, "
    "capacity 10, closed" % where, str(raised.value))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_reset_every_use_says_so(shared, kind):
  one, other = shared(kind), shared(kind)
  one.put(1, 2)
  assert other.get() in (1, 2)
  with one.session.graph.as_default():
    taken = one.queue.try_dequeue_many(1)
    put = one.queue.try_enqueue_many([[5]] * len(one.queue.dtypes))
  one.session.run(put)
  containers.clear_container(shared.container, [shared.task])
  message = "container %s was reset" % shared.container
  for call in (lambda: one.get(timeout=harness.LIMIT), lambda: one.put(3, timeout=harness.LIMIT),
               lambda: other.get(1, up_to=True, timeout=0)):
    with pytest.raises(queue_errors.QueueReset, match=message):
      call()
  for op in (taken, put):
    with pytest.raises(tf.errors.OpError) as raised:
      one.session.run(op)
    # TensorFlow 1.15's own error, of the queue that is no more, may come first.
    assert message in str(raised.value) or isinstance(raised.value, tf.errors.NotFoundError)
  late = shared(kind)
  late.put(7)  # whoever comes after the reset makes the queue anew
  with pytest.raises(queue_errors.QueueReset, match=message):
    one.get(timeout=harness.LIMIT)
  one.queue.reopen(one.session)
  assert one.get() == 7  # it goes on with what the others made since


def test_a_reset_while_an_error_is_looked_into_is_said(shared):
  one = shared("FIFOQueue")
  one.put(1)
  with one.session.graph.as_default():  # the register has gone between two operations of the run
    gone = tf.raw_ops.VarHandleOp(dtype=tf.int32, shape=[], shared_name="gone")
    one.queue._steps = one.queue._steps._replace(
      entries=[tf.raw_ops.AssignAddVariableOp(resource=gone, value=1)])
  containers.clear_container(shared.container, [shared.task])
  with pytest.raises(queue_errors.QueueReset, match="container %s was reset" % shared.container):
    one.get(timeout=harness.LIMIT)


def test_a_reset_ends_whoever_waits(shared):
  one = shared("FIFOQueue")
  other = shared("FIFOQueue")
  with pytest.raises(queue_errors.QueueEmpty):
    one.get(timeout=0)
  with other.session.graph.as_default():
    stock = other.queue.dequeue()
  with Calling(lambda: one.get()) as ours, Calling(
      lambda: other.session.run(stock)) as theirs:
    cluster = Cluster({"ps": {0: shared.task.address}}, "ps", 0)
    cleared, = reset.reset_containers(cluster, [shared.container])
  assert cleared.queues == [shared.container + "/q"]
  assert isinstance(ours.error, queue_errors.QueueReset), ours.error
  assert isinstance(theirs.error, (tf.errors.OutOfRangeError, tf.errors.CancelledError))


# What lives there already.


@pytest.mark.parametrize("theirs, mine, difference", [
  (("FIFOQueue", {}), ("FIFOQueue", {"capacity": 11}), "capacity is 10 there and 11 here"),
  (("FIFOQueue", {}), ("FIFOQueue", {"dtype": tf.float32}),
   r'dtypes is \["int32"\] there and \["float32"\] here'),
  (("FIFOQueue", {}), ("FIFOQueue", {"shape": (2,)}),
   r"shapes is \[\[\]\] there and \[\[2\]\] here"),
  (("FIFOQueue", {}), ("FIFOQueue", {"shape": None}),
   r"shapes is \[\[\]\] there and \[null\] here"),
  (("FIFOQueue", {"names": ["a"]}), ("FIFOQueue", {"names": ["b"]}),
   r'names is \["a"\] there and \["b"\] here'),
  (("FIFOQueue", {}), ("FIFOQueue", {"names": ["b"]}), r'names is null there and \["b"\] here'),
  (("FIFOQueue", {}), ("PaddingFIFOQueue", {}),
   'kind is "FIFOQueue" there and "PaddingFIFOQueue" here'),
  (("PriorityQueue", {}), ("RandomShuffleQueue", {}),
   'kind is "PriorityQueue" there and "RandomShuffleQueue" here'),
  (("RandomShuffleQueue", {"least": 1}), ("RandomShuffleQueue", {"least": 2}),
   "min_after_dequeue is 1 there and 2 here"),
])
def test_another_queue_under_the_name_is_refused_with_both_values(shared, theirs, mine, difference):
  first = shared(theirs[0], **theirs[1])
  with pytest.raises(queue_errors.QueueEmpty):
    first.get(timeout=0)
  second = shared(mine[0], **mine[1])
  with pytest.raises(queue_errors.QueueMismatch, match=difference) as raised:
    second.get(timeout=0)
  assert isinstance(raised.value, ValueError)
  assert "under the name q in container %s" % shared.container in str(raised.value)
  with pytest.raises(queue_errors.QueueMismatch, match=difference):
    second.queue.drain(second.session)
  with pytest.raises(queue_errors.QueueEmpty):  # the first goes on
    first.get(timeout=0)


@pytest.mark.parametrize("options", [{"dtype": tf.float32}, {"names": ["a"]}])
def test_a_reset_in_tensorflows_log_does_not_hide_the_other_queue(shared, options):
  container = shared.container
  first, second = shared("FIFOQueue"), shared("FIFOQueue", **options)
  first.put(7)
  shared.container += ".lost"
  lost = shared("FIFOQueue")
  lost.put(1)
  worker_service.cleanup_all(shared.task.address, [shared.container], harness.LIMIT)
  for _ in range(10):  # TensorFlow 2 logs beside the step, and appends its last lines to errors
    with pytest.raises(queue_errors.QueueReset, match=shared.container):
      lost.get(timeout=0)
    with pytest.raises(queue_errors.QueueMismatch, match="%s: " % container):
      second.get(timeout=0)
  with pytest.raises(queue_errors.QueueMismatch):
    second.queue.reopen(second.session)
  assert first.get(timeout=0) == 7


# Sharing, reopening.


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_clients_share_what_has_a_name_and_nothing_else(shared, kind):
  one, other = shared(kind), shared(kind)
  elsewhere = shared(kind, shared_name="another")
  alone, too = shared(kind, shared_name=None), shared(kind, shared_name=None)
  for client_, number in ((one, 1), (elsewhere, 2), (alone, 3)):
    client_.put(number)
  assert other.get() == 1
  assert elsewhere.get() == 2
  with pytest.raises(queue_errors.QueueEmpty):
    too.get(timeout=0)
  assert alone.get() == 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_reopened_queue_is_new_for_all_its_clients(shared, kind):
  one, other = shared(kind), shared(kind)
  bystander = shared(kind, shared_name="bystander")
  bystander.put(1)
  one.put(1, 2)
  assert other.get() in (1, 2)
  one.run(one.queue.close)
  with pytest.raises(queue_errors.QueueEnded):
    other.put(3)
  one.queue.reopen(one.session)
  with pytest.raises(queue_errors.QueueEmpty):
    other.get(timeout=0)
  other.put(4)
  assert one.get() == 4
  one.run(lambda: one.queue.close(cancel_pending_enqueues=True))
  other.queue.reopen(other.session)
  one.put(5)
  one.run(one.queue.close)
  with pytest.raises(queue_errors.QueueEnded) as raised:
    one.get(2)
  assert type(raised.value) is queue_errors.QueueEnded  # not what was said of the one before
  assert other.get() == 5
  assert bystander.get() == 1


def test_reopening_where_another_task_is_not_there(start):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  start("ps", cluster_tasks.serve, jobs, "ps", 0).wait_for("up")
  with tf.Graph().as_default() as graph:
    queue = queues.FIFOQueue(5, tf.int32, [()], shared_name="q", device="/job:ps/task:0",
                             container="reopened")
  config = tf.ConfigProto(device_filters=["/job:ps"])
  with session_lib.BoundedSession("grpc://" + jobs["ps"][0], graph, config) as session:
    for number in range(3):
      queue.put(session, number)
      queue.reopen(session)
      with pytest.raises(queue_errors.QueueEmpty):
        queue.get(session, timeout=0)
    queue.put(session, 7)
    assert queue.get(session) == 7


def test_reopening_in_a_direct_session():
  with tf.Graph().as_default(), tf.Session() as session:
    made = queues.FIFOQueue(3, tf.int32, [()], shared_name="q")
    made.put(session, 1)
    session.run(made.close())
    if tf.__version__.startswith("1."):
      with pytest.raises(RuntimeError, match="makes a queue once in a session"):
        made.reopen(session)
    else:
      made.reopen(session)
      made.put(session, 2)
      assert made.drain(session) == [2]


def test_a_monitored_session_runs_no_hooks_for_it(client):
  runs = []

  class Hook(tf.train.SessionRunHook):
    def before_run(self, run_context):
      runs.append(run_context.original_args.fetches)

  target = "grpc://" + client.task.address if client.task else ""
  device = client.task.name if client.task else None
  with tf.Graph().as_default():
    made = queues.FIFOQueue(3, tf.int32, [()], shared_name="q", device=device,
                            container=client.container)
    close, size = made.close(), made.size()
    with tf.train.MonitoredTrainingSession(master=target, hooks=[Hook()]) as session:
      made.put(session, 1)
      made.put(session, [2, 3], many=True)
      assert made.get(session) == 1
      with pytest.raises(queue_errors.QueueEmpty):
        made.get(session, 3, timeout=0)
      if client.task or not tf.__version__.startswith("1."):
        made.reopen(session)
      made.drain(session)
      assert runs == []
      assert session.run(size) == 0
      session.run(close)
      assert runs == [size, close]
      with pytest.raises(queue_errors.QueueEnded):
        made.get(session)


# Where it lives.


@pytest.fixture
def job(monkeypatch):
  """Has this process be worker 1 of a job with three ps and a container, without a server."""
  cluster = Cluster({"ps": {i: "127.0.0.1:%d" % (i + 1) for i in range(3)},
                     "worker": {0: "127.0.0.1:8", 1: "127.0.0.1:9"}}, "worker", 1)
  monkeypatch.setattr(server_lib, "_records", {"grpc://127.0.0.1:9": server_lib.ServerRecord(
    "grpc://127.0.0.1:9", cluster, "of.the/job", None, False, None, 30.0)})
  return cluster


def fifo(name="a", **options):
  return queues.FIFOQueue(3, tf.int32, [()], shared_name=name, **options)


@pytest.mark.slow
def test_a_name_is_pinned_to_a_ps_by_eight_bytes_of_its_hash(job):
  # The first sixteen digits of `printf a | sha256sum`, and of b and c.
  expected = [digits % 3 for digits in (0xca978112ca1bbdca, 0x3e23e8160039594a, 0x2e7d2c03a9507ae2)]
  assert [pinning.pinned_task(name, job).index for name in "abc"] == expected
  assert len(set(expected)) > 1
  with tf.Graph().as_default():
    assert [fifo(name).device for name in "abc"] == ["/job:ps/task:%d" % i for i in expected]
    assert fifo("a").container == "of.the/job"
    assert fifo(None).device == ""  # nobody else can find it


@pytest.mark.parametrize(
  "setter", [tf1ps.replica_device_setter, tf.train.replica_device_setter], ids=["ours", "stock"])
def test_a_device_setter_leaves_names_where_all_look_for_them(job, setter):
  with tf.Graph().as_default():
    with tf.device(setter(cluster=job.cluster_spec(), worker_device="/job:worker/task:1")):
      made = fifo("a")
      alone = fifo(None)
      made.try_dequeue_many(1)
    assert made.device == pinning.pinned_task("a", job).name
    for op in tf.get_default_graph().get_operations():
      if op.type.startswith(("Queue", "MutexLock", "LookupTable")) and "queue_1" not in op.name:
        assert made.device in op.device, op
    assert alone.device == "/job:worker/task:1"


@pytest.mark.slow
def test_the_caller_says_where(job):
  with tf.Graph().as_default():
    assert fifo("a", device="/job:ps/task:2").device == "/job:ps/task:2"
    assert fifo("a", container="other").container == "other"
    with tf.device("/job:ps/task:1"), tf.container("mine"):
      made = fifo("a")
      assert (made.device, made.container) == ("/job:ps/task:1", "mine")
      assert fifo("a", container="other").container == "other"
    with containers.container_scope("ours"):
      assert fifo("a").container == "ours"
    with pytest.raises(ValueError, match="'_' at position 2"):
      fifo("a", container="my_problem")


def test_without_a_server_it_stays_where_tensorflow_puts_it(monkeypatch):
  monkeypatch.setattr(server_lib, "_records", {})
  with tf.Graph().as_default():
    made = fifo("a")
    assert (made.device, made.container) == ("", "")
    with tf.device("/job:ps/task:1"):
      assert fifo("a").device == "/job:ps/task:1"


def test_of_a_job_without_ps_the_chief_has_it(monkeypatch, job):
  alone = dataclasses.replace(job, jobs={"worker": job.jobs["worker"]})
  record = server_lib.latest_record()
  monkeypatch.setattr(
    server_lib, "_records", {record.target: record._replace(cluster=alone)})
  with tf.Graph().as_default():
    assert fifo("a").device == "/job:worker/task:0"


def test_a_queue_on_another_ps_than_the_sessions_master(ps):
  container = "t%d" % next(_numbers)
  clients = [Client("FIFOQueue", "grpc://" + task.address, ps[1].name, container) for task in ps]
  clients[0].put(5)
  assert clients[1].get() == 5
  for one in clients:
    one.session.close()


def test_containers_keep_queues_of_one_name_apart(ps):
  made = [Client("FIFOQueue", "grpc://" + ps[0].address, ps[0].name, "t%d" % next(_numbers))
          for _ in range(2)]
  made[0].put(5)
  with pytest.raises(queue_errors.QueueEmpty):
    made[1].get(timeout=0)
  assert made[0].get() == 5
  for one in made:
    one.session.close()
