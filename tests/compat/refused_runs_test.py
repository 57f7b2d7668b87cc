from __future__ import annotations

import threading

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.cluster import session as session_lib
from tf1ps.compat import refused_runs

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


def test_run_makes_a_refused_run_again():
  function, heard = Refusing(3), []
  made = refused_runs.retry_refused_run(
    function, 1, two=2, on_refusal=lambda: heard.append(function.calls)
  )
  assert made == ((1,), {"two": 2})
  assert heard == [1, 2, 3]


def test_what_is_always_refused_is_raised():
  function = Refusing(9)
  with pytest.raises(tf.errors.AbortedError, match="received twice"):
    refused_runs.retry_refused_run(function)
  assert function.calls == 4


@pytest.mark.parametrize("error, text", [
  (tf.errors.AbortedError, "Session 17 is not found."), (tf.errors.CancelledError, TEXT)])
def test_other_errors_are_raised_at_once(error, text):
  function = Refusing(1, error, text)
  with pytest.raises(error):
    refused_runs.retry_refused_run(function)
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
  assert all(refused_runs.is_refused_run(error) for error in errors)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(IS_1, reason="1.15 has one generator for all ids, and refuses none")
def test_a_session_of_ours_does_not_refuse(server):
  with tf.Graph().as_default(), session_lib.BoundedSession(server.target) as session:
    errors = runs_until(session, tf.constant(1.0) + 1.0, lambda: session.refusals >= 1)
    assert not errors
    assert session.refusals >= 1
