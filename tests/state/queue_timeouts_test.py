"""What TensorFlow's own operations lose, and ours do not: each test shows both.

Where stock's half of a test fails with a new TensorFlow, that TensorFlow has changed, and so may
what docs/queues.md says of it.
"""
from __future__ import annotations

import contextlib
import itertools
import re
import signal
import threading
import time

import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, session_tasks
from tests.state import queue_tasks
from tf1ps.state import barrier, done_queues, queue_call, queue_errors, queues

pytestmark = pytest.mark.usefixtures("graphs_as_they_are")

LOSSY = ["FIFOQueue", "PaddingFIFOQueue", "RandomShuffleQueue"]
_numbers = itertools.count()


@pytest.fixture(params=["direct", "grpc"])
def where(request):
  """(target, device, container) of a session of this process, or of a ps."""
  container = "timeouts.%d" % next(_numbers)
  if request.param == "direct":
    return "", None, container
  task = request.getfixturevalue("ps")
  return "grpc://" + task.address, task.name, container


@pytest.fixture
def on_ps(ps):
  return "grpc://" + ps.address, ps.name, "timeouts.%d" % next(_numbers)


class Session(tf.Session):
  """A session whose close has a limit.

  A run of TensorFlow's own operation whose time is over may stay on the ps for ever, and the close
  of its session with it.
  """

  _has_closed = False

  def close(self):
    if not self._has_closed:  # Python closes it once more, where no thread may begin any more
      self._has_closed = True
      session_tasks.end_of(super().close, 5.0)


def make(where, kind="FIFOQueue", capacity=10):
  """The same queue twice: TensorFlow's and ours; and a session."""
  target, device, container = where
  with tf.Graph().as_default() as graph, tf.device(device), tf.container(container):
    stock = queue_tasks.make_queue(tf.queue, kind, "stock", capacity)
    ours = queue_tasks.make_queue(queues, kind, "ours", capacity)
  return stock, ours, Session(target, graph)


def within(seconds):
  return tf.RunOptions(timeout_in_ms=int(1000 * seconds))


def time_out(session, op, size, left):
  """Runs an operation until its time is over; checks the size of the queue that it leaves behind.

  The time of a stock operation begins before TensorFlow has made it ready to run: on a busy machine
  it may have done nothing by then.
  """
  for seconds in (0.05, 0.5, 5.0):
    with pytest.raises(tf.errors.DeadlineExceededError):
      session.run(op, options=within(seconds))
    if session.run(size) == left:
      break
  assert session.run(size) == left


@pytest.mark.parametrize("kind", LOSSY)
def test_dequeue_many_that_times_out(where, kind):
  stock, ours, session = make(where, kind)
  with session, session.graph.as_default():
    session.run(stock.enqueue_many([[1, 2, 3]]))
    time_out(session, stock.dequeue_many(4), stock.size(), 0)  # three are gone
    ours.put(session, [1, 2, 3], many=True)
    with pytest.raises(queue_errors.QueueEmpty):
      ours.get(session, 4, timeout=0.05)
    assert sorted(ours.drain(session)) == [1, 2, 3]


def test_enqueue_many_that_times_out(where):
  stock, ours, session = make(where)
  with session, session.graph.as_default():
    time_out(session, stock.enqueue_many([list(range(14))]), stock.size(), 10)
    assert session.run(stock.dequeue_many(10)).tolist() == list(range(10))  # nobody said so
    ours.put(session, list(range(5)), many=True)
    with pytest.raises(queue_errors.QueueFull):
      ours.put(session, list(range(8)), many=True, timeout=0.05)
    assert ours.drain(session) == list(range(5))
    with pytest.raises(ValueError, match="capacity of 10"):
      ours.put(session, list(range(14)), many=True)


def count_lost(session, put, get, count, timeout):
  """Puts numbers in so that they arrive when a get times out; returns how many nobody got."""
  taken, arrived = [], threading.Event()

  def take():
    while not arrived.is_set():
      got = get()
      if got is not None:
        taken.append(got)

  taker = threading.Thread(target=take)
  taker.start()
  pause = threading.Event()
  for number in range(count):
    put(number)
    pause.wait(timeout * (0.8 + 0.4 * (number % 10) / 10))
  arrived.set()
  taker.join()
  while True:
    got = get()
    if got is None:
      break
    taken.append(got)
  assert len(set(taken)) == len(taken)
  return count - len(taken)


@pytest.mark.slow
def test_an_element_that_arrives_as_the_time_is_over(on_ps):
  stock, ours, session = make(on_ps, capacity=-1)
  with session, session.graph.as_default():
    value = tf.placeholder(tf.int32, [])
    enqueue, dequeue = stock.enqueue(value), stock.dequeue()

    def get_stock():
      try:
        return int(session.run(dequeue, options=within(0.004)))
      except tf.errors.DeadlineExceededError:
        return None

    def get_ours():
      try:
        return int(ours.get(session, timeout=0.004))
      except queue_errors.QueueEmpty:
        return None

    get_stock(), get_ours()  # the first run takes longer
    assert count_lost(
      session, lambda number: session.run(enqueue, {value: number}), get_stock, 600, 0.004) > 0
    assert count_lost(
      session, lambda number: ours.put(session, number), get_ours, 600, 0.004) == 0


def test_a_session_that_is_closed_while_it_waits(on_ps):
  stock, ours, session = make(on_ps)
  with session.graph.as_default():
    session.run(stock.enqueue_many([[1, 2, 3]]))
    ours.put(session, [1, 2, 3], many=True)
    take, sizes = stock.dequeue_many(4), [stock.size(), ours.size()]
  ended = []

  def call(function):
    try:
      function()
    except Exception as error:
      ended.append(error)

  threads = [threading.Thread(target=call, args=(function,)) for function in (
    lambda: session.run(take), lambda: ours.get(session, 4))]
  with tf.Session(on_ps[0], session.graph) as other:
    for thread in threads:
      thread.start()
    harness.wait_until(lambda: other.run(sizes) == [0, 3])  # stock's hides what it holds
    session.close()
    for thread in threads:
      thread.join()
    assert len(ended) == 2
    assert other.run(sizes) == [0, 3]


def test_a_client_that_is_killed_while_it_waits(on_ps, start):
  stock, ours, session = make(on_ps)
  with session, session.graph.as_default():
    session.run(stock.enqueue_many([[1, 2, 3]]))
    ours.put(session, [1, 2, 3], many=True)
    sizes = [stock.size(), ours.size()]
    client = start("client", queue_tasks.wait_for_four, *on_ps)
    client.wait_for("asked")
    harness.wait_until(lambda: session.run(sizes) == [0, 3])
    client.kill()
    # What its operation held is gone: nobody takes these four, and they are all that is there.
    for queue in (stock, ours):
      session.run(queue.enqueue_many([[4, 5]]))
    assert session.run(sizes) == [2, 5]
    assert ours.drain(session) == [1, 2, 3, 4, 5]


class Pauses:
  """Stands in for the module `time`; notes the pauses: (when it begins, seconds)."""

  def __init__(self):
    self.noted = []

  def sleep(self, seconds):
    self.noted.append((time.monotonic(), seconds))
    threading.Event().wait(seconds)

  def monotonic(self):
    return time.monotonic()


def test_an_element_is_in_the_hands_of_who_waits_for_it_after_a_pause_of_five_milliseconds(
    on_ps, monkeypatch):
  _, ours, session = make(on_ps)
  other, pauses, moments = tf.Session(on_ps[0], session.graph), Pauses(), []
  with session, other:
    ours.put(session, 0)
    ours.get(other)
    monkeypatch.setattr(queue_call, "time", pauses)
    began = time.process_time()
    hand_over(ours, session, other, 25, moments)
    cost = (time.process_time() - began) / (len(pauses.noted) + 2 * 25)
  assert pauses.noted and max(seconds for _, seconds in pauses.noted) <= 0.005
  # One that looked just before an element was put in makes one pause more, on any machine.
  assert max(sum(put < began < took for began, _ in pauses.noted) for put, took in moments) <= 1
  assert cost < 0.01  # seconds of this process, for each request


def hand_over(queue, session, other, count, moments):
  """Puts elements in for one who waits; notes when each was put, and when it was in its hands."""
  took, pause = [], threading.Event()

  def take():
    for _ in range(count):
      queue.get(other, timeout=60)
      took.append(time.monotonic())

  taker = threading.Thread(target=take)
  taker.start()
  for number in range(count):
    pause.wait(0.003 + 0.001 * (number % 7))
    queue.put(session, number)
    put = time.monotonic()
    harness.wait_until(lambda: len(took) > number)  # noqa: B023
    moments.append((put, took[number]))
  taker.join()


@pytest.mark.slow
def test_no_call_waits_for_a_ps_that_stands_still(start, set_timing):
  """The timeout and a margin end each call; when the ps goes on, the session serves on."""
  jobs = {"ps": harness.addresses(1)}
  server = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  server.wait_for("up")
  device = "/job:ps/task:0"
  with tf.Graph().as_default() as graph:
    queue = queues.FIFOQueue(10, [tf.int32], [[]], shared_name="numbers", device=device)
    gate = barrier.Barrier("gate", 2, 0, device=device)
    done = done_queues.DoneQueues(1, places=[device], container="job")
  session = Session("grpc://" + jobs["ps"][0], graph)
  calls = {
    "get() with timeout=0.1 on FIFOQueue numbers": lambda: queue.get(session, timeout=0.1),
    "put() with timeout=0.1 on FIFOQueue numbers": lambda: queue.put(session, 7, timeout=0.1),
    "the barrier's token with timeout=0.1 on FIFOQueue gate/0":
      lambda: gate.wait(session, timeout=0.1),
    "wait() for reports": lambda: done.wait(session, timeout=0.1),
  }
  set_timing(queue_call, answer_limit=harness.LIMIT)
  for call in list(calls.values())[1:]:  # the session's first runs
    with contextlib.suppress(queue_errors.QueueTimeout, done_queues.DoneTimeout):
      call()
  set_timing(queue_call, answer_limit=0.1)
  server.signal(signal.SIGSTOP)
  for what, call in calls.items():
    ends = []
    session_tasks.end_of(lambda call=call, ends=ends: ends.append(error_of(call)), harness.LIMIT)
    assert [type(error) for error in ends] == [queue_errors.QueueUnanswered], what
    assert not isinstance(ends[0], queue_errors.QueueTimeout)
    # What is left of the timeout when the request begins, and the margin.
    assert re.match(re.escape(what + " at /job:ps/task:0: a request had no answer for ")
                    + r"0\.[12] s", str(ends[0])), ends[0]
  set_timing(queue_call, answer_limit=harness.LIMIT)
  server.signal(signal.SIGCONT)
  queue.put(session, [8, 8], many=True)  # the get that was left behind may still take one
  harness.wait_until(lambda: queue.get(session, timeout=harness.LIMIT) == 8)
  session.close()


def error_of(function):
  try:
    return function()
  except Exception as error:
    return error
