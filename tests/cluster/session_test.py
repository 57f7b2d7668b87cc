from __future__ import annotations

import collections
import contextlib
import functools
import gc
import json
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness, session_tasks
from tf1ps.cluster import session as session_lib

Pair = collections.namedtuple("Pair", ["a", "b"])


class Blocked:
  """A session, with threads that are blocked in the dequeue of an empty queue."""

  def __init__(self, threads, via_callable=False):
    self.graph = tf.Graph()
    with self.graph.as_default():
      self.queue = tf.FIFOQueue(10, tf.int32)
      self.take, self.put = self.queue.dequeue(), self.queue.enqueue(5)
    self.session = session_lib.BoundedSession(graph=self.graph)
    self.errors, self.freed_at, self._threads = [], [], []
    take = functools.partial(self.session.run, self.take)
    if via_callable:
      take = functools.partial(self.session.make_callable(self.take, accept_options=True),
                               options=tf.RunOptions(), run_metadata=tf.RunMetadata())
    for _ in range(threads):
      self._threads.append(threading.Thread(target=self._run, args=(take,), daemon=True))
      self._threads[-1].start()
    harness.wait_until(lambda: sum(h.is_busy for h in list(self.session._helpers)) >= threads, 10)

  def _run(self, take):
    try:
      take()
    except BaseException as error:
      self.errors.append(error)
    self.freed_at.append(time.monotonic())

  def join(self):
    for thread in self._threads:
      thread.join(10)
      assert not thread.is_alive()
    return self.errors


def both(function):
  """What a function does with a stock session and with ours: its results or errors."""
  outcomes = []
  for kind in (tf.Session, session_lib.BoundedSession):
    with tf.Graph().as_default(), kind() as session:
      try:
        outcomes.append(function(session))
      except Exception as error:
        outcomes.append((type(error), getattr(error, "op", None) and error.op.name,
                         str(error).splitlines()[-1]))
  return outcomes


def plain(value):
  """A fetched value with lists in the place of arrays, which == can compare."""
  if isinstance(value, dict):
    return type(value), {key: plain(one) for key, one in value.items()}
  if isinstance(value, (list, tuple)):
    return type(value), [plain(one) for one in value]
  return type(value), value.tolist() if hasattr(value, "tolist") else value


def fetches():
  """Everything that a session can fetch; and a feed."""
  x = tf.placeholder(tf.float32, [None], "x")
  doubled, text = tf.multiply(x, 2.0, name="doubled"), tf.constant("é", name="text")
  sparse = tf.SparseTensor([[0, 1]], [3.0], [1, 2])
  return [doubled, "doubled:0", text, [doubled, text], (doubled,), Pair(doubled, [text]),
          {"d": doubled, "n": {"t": text}}, collections.OrderedDict(z=text, a=doubled), sparse,
          doubled.op, tf.no_op(), [], x], {x: [1.0, 2.5]}


def test_run_returns_what_stock_returns():
  def run(session):
    all_fetches, feed = fetches()
    return [plain(session.run(fetch, feed)) for fetch in all_fetches]

  stock, ours = both(run)
  assert stock == ours
  assert ours[0] == (np.ndarray, [2.0, 5.0])


def test_run_fills_the_metadata():
  def run(session):
    metadata = tf.RunMetadata()
    value = session.run(tf.add(1, 2, name="sum"), None, tf.RunOptions(trace_level=3), metadata)
    return value, len(metadata.step_stats.dev_stats) > 0

  assert both(run) == [(3, True), (3, True)]


def test_make_callable_returns_what_stocks_returns():
  def run(session):
    x = tf.placeholder(tf.int32, [])
    y, metadata = x * 2, tf.RunMetadata()
    with_options = session.make_callable(y + 1, [x], accept_options=True)
    return [session.make_callable([y, x], [x])(4), session.make_callable(y.op, feed_list=[x])(1),
            session.make_callable(tf.constant(5))(),
            with_options(3, options=tf.RunOptions(trace_level=3), run_metadata=metadata),
            len(metadata.step_stats.dev_stats) > 0]

  stock, ours = both(run)
  assert stock == ours == [[8, 4], None, 5, 7, True]


def test_variables_eval_and_the_default_session():
  def run(session):
    v = tf.get_variable("v", initializer=1.5)
    v.initializer.run()
    return [v.eval(), tf.get_default_session() is session, session.run(v), v.load(2.0, session),
            v.eval()]

  assert both(run) == [[1.5, True, 1.5, None, 2.0]] * 2


@pytest.mark.parametrize("provoke", [
    lambda session: session.run(tf.check_numerics(np.inf, "bad", name="check")),
    lambda session: session.run(
        tf.placeholder_with_default(tf.constant([1.0]), [None]) + tf.placeholder(
            tf.float32, [], "missing")),
    lambda session: session.run([tf.FIFOQueue(1, tf.int32, name="q").close().outputs,
                                 session.run(tf.get_default_graph().get_operation_by_name(
                                     "q_Close")), tf.constant(0)]),
    lambda session: session.run(3),
    lambda session: session.run("absent:0"),
    lambda session: session.run(tf.constant(1), {tf.placeholder(tf.int32, [2]): [1]}),
    lambda session: session.run(tf.get_variable("uninitialised", [])),
    lambda session: session.make_callable(tf.check_numerics(np.nan, "bad"))(),
])
def test_errors_are_stocks(provoke):
  stock, ours = both(provoke)
  assert stock == ours


def test_the_end_of_the_data_is_an_out_of_range_error():
  def run(session):
    queue = tf.FIFOQueue(1, tf.int32)
    session.run(queue.close())
    return session.run(queue.dequeue())

  stock, ours = both(run)
  assert stock[0] is ours[0] is tf.errors.OutOfRangeError


@pytest.mark.parametrize("via_callable", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_abort_frees_every_blocked_caller_at_once(threads, via_callable):
  blocked = Blocked(threads, via_callable)
  assert blocked.session.is_running and not blocked.session.is_aborted
  aborted_at = time.monotonic()
  blocked.session.abort(lambda: KeyError("gone"))
  errors = blocked.join()
  assert [type(error) for error in errors] == [KeyError] * threads
  assert len(set(map(id, errors))) == threads  # an error of each caller's own
  assert max(blocked.freed_at) - aborted_at < 0.5
  assert blocked.session.is_aborted and not blocked.session.is_running
  with pytest.raises(KeyError, match="gone"):
    blocked.session.run(blocked.put)
  blocked.session.abort(lambda: ValueError("later"))  # the first one stays
  with pytest.raises(KeyError, match="gone"):
    blocked.session.run(blocked.put)
  began = time.monotonic()
  blocked.session.close()
  assert time.monotonic() - began < 0.5
  with pytest.raises(KeyError, match="gone"):
    blocked.session.run(blocked.put)


def test_abort_frees_the_main_thread():
  with tf.Graph().as_default(), session_lib.BoundedSession() as session:
    take = tf.FIFOQueue(10, tf.int32).dequeue()
    timer = threading.Timer(0.2, session.abort, [lambda: tf.errors.AbortedError(None, None, "x")])
    timer.start()
    began = time.monotonic()
    with pytest.raises(tf.errors.AbortedError):
      session.run(take)
    assert time.monotonic() - began < 0.7


def test_close_ends_a_blocked_run_as_stocks_does():
  blocked = Blocked(2)
  blocked.session.close()
  assert [type(error) for error in blocked.join()] == [tf.errors.CancelledError] * 2


def test_a_closed_session():
  calls = []
  with tf.Graph().as_default():
    session = session_lib.BoundedSession(on_close=lambda: calls.append(session.run(one)))
    one = tf.constant(1)
    run_one = session.make_callable(one)
    with pytest.raises(RuntimeError, match="Attempted to use a closed Session."):
      session.close()
    session.close()
    for run in (lambda: session.run(one), run_one):
      with pytest.raises(RuntimeError, match="Attempted to use a closed Session."):
        run()


def test_on_close_is_called_once_before_the_session_closes():
  events = []
  with tf.Graph().as_default():
    one = tf.constant(1)
    session = session_lib.BoundedSession(
        on_close=lambda: events.append(tf.Session.run(session, one)))
    assert events == []
    session.close()
    session.close()
  assert events == [1]


def test_the_with_statement_closes():
  with tf.Graph().as_default():
    with session_lib.BoundedSession() as session:
      assert session.run(tf.constant(1)) == 1
    with pytest.raises(RuntimeError, match="closed"):
      session.run([])


class Interrupted(Exception):
  pass


@contextlib.contextmanager
def interrupt_soon(seconds):
  """Raises Interrupted in the main thread, from a signal's handler."""
  def handler(*unused):
    raise Interrupted

  before = signal.signal(signal.SIGALRM, handler)
  signal.setitimer(signal.ITIMER_REAL, seconds)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_after_a_wait_that_an_exception_ended_nobody_gets_its_result():
  with tf.Graph().as_default(), session_lib.BoundedSession() as session:
    queue = tf.FIFOQueue(10, tf.int32)
    take, put = queue.dequeue(), queue.enqueue(77)
    for _ in range(2):
      with pytest.raises(Interrupted), interrupt_soon(0.1):
        session.run(take)
      assert not session.is_running
    assert [session.run(tf.constant(i)) for i in range(3)] == [0, 1, 2]
    session.run(put)
    session.run(put)
    assert [session.run(tf.constant(i)) for i in range(20)] == list(range(20))
    harness.wait_until(lambda: session.run(queue.size()) == 0, 10)
    session.run(put)
    assert session.run(take) == 77


def helpers_beside(known):
  gc.collect()
  return sum(thread.name == "tf1ps: session.run" for thread in set(threading.enumerate()) - known)


def test_the_helpers_end_with_their_callers_and_with_the_session():
  known = set(threading.enumerate())
  with tf.Graph().as_default():
    session = session_lib.BoundedSession()
    one = tf.constant(1)
  assert session.run(one) == 1
  for _ in range(20):
    thread = threading.Thread(target=session.run, args=(one,))
    thread.start()
    thread.join()
  harness.wait_until(lambda: helpers_beside(known) == 1, 10)
  del session
  harness.wait_until(lambda: helpers_beside(known) == 0, 10)


def lose_ps(start, number):
  """Has a client of each kind lose its ps; returns what came of its run, close, and run again.

  Returns:
    For stock and for ours, a list of (what came of a call, seconds).
  """
  clients = []
  for kind in ("stock", "ours"):
    jobs = {job: harness.addresses(1) for job in ("ps", "worker")}
    ps = start("ps", cluster_tasks.serve, jobs, "ps", 0)
    ps.wait_for("up")
    clients.append(start(kind, session_tasks.lose_ps, kind, jobs, ps.pid, number))
  ends = []
  for client in clients:
    assert client.wait() == 0, client.output
    assert "counted 1" in client.lines
    words = [line.split() for line in client.lines if line.startswith("ended: ")]
    ends.append([(word, float(seconds)) for _, word, seconds in words])
  return ends


def test_close_is_bounded_where_the_ps_is_dead(start):
  stock, ours = lose_ps(start, signal.SIGKILL)
  assert stock[0][0] == ours[0][0]
  assert ours[0][0] in ("UnavailableError", "hangs")  # on 2.x and on 1.15
  assert stock[1][0] == "hangs"
  assert ours[1][0] == "returned" and 0.5 <= ours[1][1] < 1.5  # its close_limit
  assert ours[2][0] == "CancelledError" and ours[2][1] < 0.5


def test_abort_and_close_where_the_ps_stands_still(start):
  stock, ours = lose_ps(start, signal.SIGSTOP)
  assert [how for how, _ in stock[:2]] == ["hangs", "hangs"]
  assert [how for how, _ in ours] == ["KeyError", "returned", "KeyError"]
  assert 0.3 <= ours[0][1] < 0.8  # aborted after 0.3 s
  assert ours[1][1] < 0.7 and ours[2][1] < 0.5


def test_keyboard_interrupt_arrives_in_a_blocked_run(start):
  task = start("ours", session_tasks.block, "ours")
  task.wait_for("blocked")
  task.signal(signal.SIGINT)
  task.wait_for("interrupted", 5)
  assert task.wait() == 0, task.output
  assert task.output.splitlines()[-5:] == [
      "blocked", "interrupted", "then 2 1", "then" + " 2" * 20, "taken 7"]


def test_keyboard_interrupt_does_not_arrive_in_stocks(start):
  task = start("stock", session_tasks.block, "stock")
  task.wait_for("blocked")
  task.signal(signal.SIGINT)
  with pytest.raises(AssertionError, match="no 'interrupted' within 1 s"):
    task.wait_for("interrupted", 1)
  assert task.is_running


@contextlib.contextmanager
def leaving_interpreter(kind, start, output):
  """An interpreter that exits while its sessions are open, broken and blocked."""
  jobs = {job: harness.addresses(1) for job in ("ps", "worker")}
  ps = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  ps.wait_for("up")
  program = ("import json, sys; from tests import session_tasks; "
             "session_tasks.exit_with_abandoned_sessions(*json.loads(sys.argv[1]))")
  with open(str(output), "wb") as file:
    process = subprocess.Popen(
        [sys.executable, "-c", program, json.dumps([kind, jobs, ps.pid])], stdout=file, stderr=file)
  try:
    yield process
  finally:
    process.kill()
    process.wait()


def test_an_interpreter_with_abandoned_sessions_exits(start, tmp_path):
  with leaving_interpreter("stock", start, tmp_path / "stock") as stock, \
      leaving_interpreter("ours", start, tmp_path / "ours") as ours:
    assert ours.wait(60) == 7, (tmp_path / "ours").read_text()
    harness.wait_until(lambda: "leaving" in (tmp_path / "stock").read_text())
    with pytest.raises(subprocess.TimeoutExpired):  # where stock's never gets that far
      stock.wait(1.5)
