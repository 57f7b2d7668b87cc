from __future__ import annotations

import collections
import gc
import json
import threading
import weakref

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import cluster_tasks, harness
from tf1ps.cluster import session as session_lib
from tf1ps.compat import session_runs

IS_1 = tf.__version__.startswith("1.")
TEXT = "From /job:ps:\nThe same RunGraph (Worker) request was received twice. graph_handle: 1"
RUNS = 1000000  # a run is refused once in 43,000; that none of these is has a chance of 1e-9


class Refusing:
  """A run that is refused so often, and then made."""

  def __init__(self, times, error=tf.errors.AbortedError, text=TEXT):
    self.left = times
    self.calls = 0
    self._error = error
    self._text = text

  def __call__(self, *args, **kwargs):
    self.calls += 1
    self.left -= 1
    if self.left >= 0:
      raise self._error(None, None, self._text)
    return args, kwargs


@pytest.mark.parametrize("error, text", [
  (tf.errors.AbortedError, TEXT), (tf.errors.CancelledError, TEXT),
  (tf.errors.CancelledError, "2 root error(s) found.\n  (0) Cancelled: RecvFromRemoteAsync is "
   "cancelled.\n  (1) Aborted: The same RunGraph request was received twice.")])
def test_run_makes_a_refused_run_again(error, text):
  function, heard = Refusing(3, error, text), []
  made = session_runs.retry_refused_run(
    function, 1, two=2, on_refusal=lambda: heard.append(function.calls)
  )
  assert made == ((1,), {"two": 2})
  assert heard == [1, 2, 3]


def test_what_is_always_refused_is_raised():
  function = Refusing(9)
  with pytest.raises(tf.errors.AbortedError, match="received twice"):
    session_runs.retry_refused_run(function)
  assert function.calls == 4


@pytest.mark.parametrize("error, text", [
  (tf.errors.AbortedError, "Session 17 is not found."),
  (tf.errors.CancelledError, "Step 3 was cancelled"), (tf.errors.InternalError, TEXT),
  (tf.errors.AbortedError, "Session 17 is not found.\nRecent warning and error logs:\n  " + TEXT)])
def test_other_errors_are_raised_at_once(error, text):
  function = Refusing(1, error, text)
  with pytest.raises(error):
    session_runs.retry_refused_run(function)
  assert function.calls == 1


@pytest.fixture(scope="module")
def server():
  return tf.train.Server.create_local_server()


def runs_until(session, tensor, is_enough, limit=RUNS):
  """Runs a tensor by four threads; returns the errors."""
  left, errors = [limit], []

  def work():
    call = session.make_callable(tensor)
    while left[0] > 0 and not errors and not is_enough():
      left[0] -= 1
      try:
        call()
      except tf.errors.OpError as error:
        errors.append(error)

  threads = [threading.Thread(target=work) for _ in range(4)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  return errors


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stock_refuses_a_run_by_mistake(server):
  """Where this changes with a new TensorFlow, it is time to take the module away."""
  with tf.Graph().as_default(), tf.Session(server.target) as session:
    errors = runs_until(session, tf.constant(1.0) + 1.0, lambda: False, 60000 if IS_1 else RUNS)
  assert bool(errors) == (not IS_1)
  assert all(session_runs.is_refused_run(error) for error in errors)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(IS_1, reason="1.15 has one generator for all ids, and refuses none")
def test_a_session_of_ours_does_not_refuse(server):
  with tf.Graph().as_default(), session_lib.BoundedSession(server.target) as session:
    errors = runs_until(session, tf.constant(1.0) + 1.0, lambda: session.refusals >= 1)
    assert not errors
    assert session.refusals >= 1


# Cancelled runs.


LIST = ("2 root error(s) found.\n  (0) Cancelled: RecvFromRemoteAsync is cancelled.\n"
        "  (1) Aborted: %s")
RECEIVE = "From /job:worker:\nRecvFromRemoteAsync is cancelled.\n\t [[{{node add}}]]"


@pytest.mark.parametrize("text", [
  RECEIVE, LIST % "Session handle is not found: 17", "[_Derived_]RecvAsync is cancelled."])
def test_a_run_that_nobody_cancelled_is_aborted(text):
  with pytest.raises(tf.errors.AbortedError, match="a task has dropped the run: .*is cancelled"):
    session_runs.retry_refused_run(Refusing(1, tf.errors.CancelledError, text))


@pytest.mark.parametrize("text", [
  "", "the session was closed", "Dequeue operation was cancelled",
  LIST % "Dequeue operation was cancelled", LIST % "Step was cancelled by an explicit call",
  "Enqueue operation was cancelled\nRecent warning and error logs:\n  " + RECEIVE])
def test_a_cancelled_run_stays_cancelled(text):
  with pytest.raises(tf.errors.CancelledError):
    session_runs.retry_refused_run(Refusing(1, tf.errors.CancelledError, text))


@pytest.mark.slow
@pytest.mark.timeout(200)
@pytest.mark.skipif(IS_1, reason="1.15 names the session that is not there, and cancels nothing")
def test_a_run_is_aborted_when_another_process_of_its_task_comes(forks):
  task = forks.start("two of a task", cluster_tasks.open_sessions_of_one_task, harness.addresses(3))
  assert task.wait(150.0) == 0, task.output
  kinds = json.loads(task.last_line)
  assert "CancelledError" in kinds, kinds
  assert all(text.startswith("AbortedError: ") for text in kinds.values()), kinds


# Prepared runs.


Pair = collections.namedtuple("Pair", ["first", "second"])


@pytest.fixture
def session():
  with tf.Graph().as_default(), tf.Session() as made:
    yield made


def prepare(session, runs, fetches):
  return runs.find(session, session.make_callable, fetches)


def test_the_private_symbol_is_there():
  assert callable(tf.Session._do_call)  # what a run's errors get their operations by


def test_what_is_fetched_is_what_stock_returns(session):
  x = tf.constant([1.0, 2.0], name="x")
  y = tf.constant(3)
  key = object()
  runs = session_runs.PreparedRuns()
  for fetches in (x, [x], (x, y), [x.op, y], {"a": x, key: [y, {"b": (y, x)}]}, Pair(y, [x, x]),
                  collections.OrderedDict([("z", x), ("a", y)]), x.op, [[], x]):
    for _ in range(2):
      found, expected = prepare(session, runs, fetches)(), session.run(fetches)
      assert type(found) is type(expected)
      np.testing.assert_equal(found, expected)


def test_each_set_of_fetches_is_worked_out_once(session):
  x, y = tf.constant(1), tf.constant(2)
  made = []

  def make_callable(fetches):
    made.append(fetches)
    return session.make_callable(fetches)

  runs = session_runs.PreparedRuns()
  for fetches in ([x, y], [x, y], (x, y), [y, x], [x, y], [[x], y], [x, [y]], {"x": x}, {"y": x}):
    runs.find(session, make_callable, fetches)()
  assert made == [[x, y], (x, y), [y, x], [[x], y], [x, [y]], {"x": x}, {"y": x}]


def test_the_number_of_sets_is_bounded(session):
  runs = session_runs.PreparedRuns()
  for number in range(100):
    assert prepare(session, runs, tf.constant(number))() == number
  assert len(runs._made) <= 64


def test_other_fetches_are_left_to_stock(session):
  variable = tf.get_variable("v", [])
  sparse = tf.SparseTensor([[0]], [1.0], [1])
  runs = session_runs.PreparedRuns()
  for fetches in ("v:0", variable, [sparse], None, [None], [], {}, [[], ()]):
    assert prepare(session, runs, fetches) is None


@pytest.mark.parametrize("feed_dict, options, can", [
  (None, None, True), ({}, tf.RunOptions(), True), ({"x:0": 1}, None, False),
  (None, tf.RunOptions(timeout_in_ms=1), False)])
def test_which_runs_can_be_prepared(feed_dict, options, can):
  assert session_runs.can_prepare(feed_dict, options) is can


def test_an_error_names_the_operation_and_its_line_as_stocks_does(session):
  bad = tf.reshape(tf.constant([1, 2, 3]), tf.placeholder_with_default([2, 2], [2]), name="bad")
  with pytest.raises(tf.errors.InvalidArgumentError) as stock:
    session.run([bad])
  with pytest.raises(tf.errors.InvalidArgumentError) as ours:
    prepare(session, session_runs.PreparedRuns(), [bad])()
  assert ours.value.message == stock.value.message and "session_runs_test.py" in str(ours.value)
  assert ours.value.op is bad.op and ours.value.node_def == bad.op.node_def


def test_a_session_makes_prepared_runs(monkeypatch):
  made = []
  stock = tf.Session.make_callable
  monkeypatch.setattr(tf.Session, "make_callable", lambda self, *args: (
    made.append(args[0]) or stock(self, *args)))
  with tf.Graph().as_default():
    x = tf.placeholder_with_default(1, [])
    with session_lib.BoundedSession() as session:
      assert [session.run([x]) for _ in range(3)] == [[1]] * 3
      assert session.run([x], {x: 5}) == [5]
      with pytest.raises(TypeError):
        session.run([None])
    assert made == [[x]]


def test_a_closed_session_is_not_kept():
  with tf.Graph().as_default():
    x = tf.constant(1)
    session = session_lib.BoundedSession()
    session.run(x)
    session.close()
    kept = weakref.ref(session)
    del session
    gc.collect()
    assert kept() is None


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="it ends the process there")
def test_an_error_whose_text_is_not_utf8_shows_its_text(server):
  with tf.Graph().as_default() as graph:
    number = tf.strings.to_number(tf.constant(b"\xc8 4"))
  session = session_lib.BoundedSession(server.target, graph)
  with pytest.raises(tf.errors.UnknownError, match="convert string: \ufffd 4"):
    session.run(number)
  session.close()
