"""Sessions whose callers are blocked: how they are freed, by others and by themselves."""
from __future__ import annotations

import contextlib
import functools
import gc
import os
import signal
import threading

import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import session as session_lib


class Blocked:
  """A session, with threads that are blocked in the dequeue of an empty queue."""

  def __init__(self, threads, via_callable=False):
    self.graph = tf.Graph()
    begun = []  # runs that TensorFlow has begun
    with self.graph.as_default():
      self.queue = tf.FIFOQueue(10, tf.int32)
      self.put = self.queue.enqueue(5)
      with tf.control_dependencies([tf.py_func(lambda: begun.append(True), [], [])]):
        self.take = self.queue.dequeue()
    self.session = session_lib.BoundedSession(graph=self.graph)
    self.errors, self._threads = [], []
    take = functools.partial(self.session.run, self.take)
    if via_callable:
      take = functools.partial(self.session.make_callable(self.take, accept_options=True),
                               options=tf.RunOptions(), run_metadata=tf.RunMetadata())
    for _ in range(threads):
      self._threads.append(threading.Thread(target=self._run, args=(take,), daemon=True))
      self._threads[-1].start()
    harness.wait_until(lambda: len(begun) >= threads)

  def _run(self, take):
    try:
      take()
    except BaseException as error:
      self.errors.append(error)

  def join(self):
    for thread in self._threads:
      thread.join(60)
      assert not thread.is_alive()
    return self.errors


@pytest.mark.parametrize("via_callable", [False, True])
@pytest.mark.parametrize("threads", [1, 3])
def test_abort_frees_every_blocked_caller_at_once(threads, via_callable):
  blocked = Blocked(threads, via_callable)
  assert blocked.session.is_running and not blocked.session.is_aborted
  blocked.session.abort(lambda: KeyError("gone"))
  errors = blocked.join()
  assert [type(error) for error in errors] == [KeyError] * threads
  assert len(set(map(id, errors))) == threads  # an error of each caller's own
  assert blocked.session.is_aborted and not blocked.session.is_running
  with pytest.raises(KeyError, match="gone"):
    blocked.session.run(blocked.put)
  blocked.session.abort(lambda: ValueError("later"))  # the first one stays
  with pytest.raises(KeyError, match="gone"):
    blocked.session.run(blocked.put)
  blocked.session.close()
  with pytest.raises(KeyError, match="gone"):
    blocked.session.run(blocked.put)


def test_abort_frees_the_main_thread():
  with tf.Graph().as_default(), session_lib.BoundedSession() as session:
    take = tf.FIFOQueue(10, tf.int32).dequeue()
    timer = threading.Timer(0.2, session.abort, [lambda: tf.errors.AbortedError(None, None, "x")])
    timer.start()
    with pytest.raises(tf.errors.AbortedError):
      session.run(take)


def test_close_ends_a_blocked_run_as_stocks_does():
  blocked = Blocked(2)
  blocked.session.close()
  assert [type(error) for error in blocked.join()] == [tf.errors.CancelledError] * 2


class Interrupted(Exception):
  pass


@contextlib.contextmanager
def interrupt_when(condition):
  """Raises Interrupted in the main thread, from a signal's handler, once condition() is true."""
  def handler(*unused):
    raise Interrupted

  def wait_and_send():
    harness.wait_until(condition)
    os.kill(os.getpid(), signal.SIGALRM)

  before = signal.signal(signal.SIGALRM, handler)
  sender = threading.Thread(target=wait_and_send)
  sender.start()
  try:
    yield
  finally:
    sender.join()
    signal.signal(signal.SIGALRM, before)


def test_after_a_wait_that_an_exception_ended_nobody_gets_its_result():
  with tf.Graph().as_default(), session_lib.BoundedSession() as session:
    queue, begun = tf.FIFOQueue(10, tf.int32), []
    with tf.control_dependencies([tf.py_func(lambda: begun.append(True), [], [])]):
      take = queue.dequeue()
    put = queue.enqueue(77)
    for number in (1, 2):
      with pytest.raises(Interrupted), interrupt_when(
          lambda: len(begun) == number):  # noqa: B023
        session.run(take)
      assert not session.is_running
    assert [session.run(tf.constant(i)) for i in range(3)] == [0, 1, 2]
    session.run(put)
    session.run(put)
    assert [session.run(tf.constant(i)) for i in range(20)] == list(range(20))
    harness.wait_until(lambda: session.run(queue.size()) == 0)
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
  harness.wait_until(lambda: helpers_beside(known) == 1)
  del session
  harness.wait_until(lambda: helpers_beside(known) == 0)
