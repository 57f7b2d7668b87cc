from __future__ import annotations

import collections
import queue
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.cluster import session as session_lib

Pair = collections.namedtuple("Pair", ["a", "b"])


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


def test_a_run_without_options_overwrites_its_metadata():
  def run(session):
    metadata = tf.RunMetadata()
    metadata.partition_graphs.add().versions.producer = 7
    session.run(tf.add(1, 2, name="sum"), run_metadata=metadata)
    return len(metadata.partition_graphs)

  assert both(run) == [0, 0]


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


@pytest.mark.parametrize("begin", [
  lambda session, one: session.run(one), lambda session, one: session.make_callable(one)],
  ids=["run", "make_callable"])
def test_who_waits_for_a_silent_master_can_be_freed(begin):
  """The graph goes to the master before the first run, in a call that may never return."""
  ended = queue.Queue()

  def wait(session, one):
    try:
      begin(session, one)
    except Exception as error:
      ended.put(error)

  with socket.socket() as silent, tf.Graph().as_default():
    silent.bind(("127.0.0.1", 0))
    silent.listen(5)
    one = tf.constant(1)
    session = session_lib.BoundedSession("grpc://127.0.0.1:%d" % silent.getsockname()[1])
    caller = threading.Thread(target=wait, args=(session, one), daemon=True)
    caller.start()
    harness.wait_until(lambda: session.is_running or not ended.empty())
    assert ended.empty()
    session.abort(lambda: SystemError("freed"))
    assert str(ended.get(timeout=harness.LIMIT)) == "freed"
    caller.join(harness.LIMIT)
    session.close()


_LATE_CLOSE = """
import atexit, os, signal, sys, threading
atexit.register(lambda: print("closing:", sum(
  thread.name == "tf1ps: close a session" for thread in threading.enumerate())))
import tensorflow.compat.v1 as tf
from tf1ps.cluster import BoundedSession
tf.disable_eager_execution()
session = BoundedSession(sys.argv[1], close_limit=0.1)
session.run(tf.constant(1))
os.kill(int(sys.argv[2]), signal.SIGSTOP)
session.close()
later = threading.Timer(0.3, os.kill, (int(sys.argv[2]), signal.SIGCONT))
later.daemon = True
later.start()
"""


@pytest.mark.slow
def test_the_end_of_the_process_waits_for_a_late_close(forks):
  """TensorFlow 2 aborts a process in which a close returns while the interpreter exits."""
  address, = harness.addresses(1)
  server = forks.start("ps", cluster_tasks.serve, {"ps": [address]}, "ps", 0)
  server.wait_for("up")
  done = subprocess.run(
    [sys.executable, "-c", _LATE_CLOSE, "grpc://" + address, str(server.pid)],
    stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
  assert (done.returncode, done.stdout.decode().split()[-2:]) == (0, ["closing:", "0"]), done.stderr
