from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from tests import harness
from tf1ps import compat
from tf1ps.cluster import bounded


def test_returns_what_the_function_returned():
  assert bounded.call_within(60, "adding", lambda a, b: a + b, 1, b=2) == 3


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_raises_what_the_function_raised(error):
  def fail():
    raise error

  with pytest.raises(type(error)) as raised:
    bounded.call_within(60, "failing", fail)
  assert raised.value is error


def test_leaves_a_call_behind_at_the_limit():
  go_on, threads = threading.Event(), []

  def wait():
    threads.append(threading.current_thread())
    go_on.wait(60)

  began = time.monotonic()
  with pytest.raises(bounded.LimitExceeded, match="^waiting did not end within 0.2 s$"):
    bounded.call_within(0.2, "waiting", wait)
  assert time.monotonic() - began >= 0.2
  assert threads[0].is_alive() and threads[0].daemon and threads[0].name == "tf1ps: waiting"
  go_on.set()
  threads[0].join(60)
  assert not threads[0].is_alive()


def test_a_limit_may_be_given_again():
  go_on, asked = threading.Event(), []

  def extend():
    asked.append(True)
    if len(asked) == 2:
      go_on.set()
    return True

  assert bounded.call_within(0.05, "waiting", go_on.wait, 60, extend=extend)
  assert len(asked) >= 2


def test_a_result_that_comes_while_the_limit_is_refused_again_is_no_loss(monkeypatch):
  helper, go_on = bounded._CallThread(), threading.Event()
  monkeypatch.setattr(bounded, "_take_helper", lambda: helper)

  def extend():
    go_on.set()
    harness.wait_until(lambda: not helper._results.empty())
    return False

  assert bounded.call_within(0.05, "waiting", go_on.wait, 60, extend=extend)


def test_a_thread_serves_many_calls_and_one_left_behind_serves_none():
  def who():
    return threading.current_thread()

  first = bounded.call_within(60, "asking", who)
  assert bounded.call_within(60, "asking", who) is first
  go_on, ended = threading.Event(), threading.Event()
  with pytest.raises(bounded.LimitExceeded):
    bounded.call_within(0.05, "waiting", lambda: go_on.wait(60) and ended.set())
  assert bounded.call_within(60, "asking", who) is not first
  go_on.set()
  assert ended.wait(60)


def test_a_fork_has_threads_of_its_own():
  bounded.call_within(60, "asking", int)
  child = os.fork()
  if not child:
    os._exit(bounded.call_within(60, "asking", int, 7))
  assert os.waitpid(child, 0)[1] >> 8 == 7


def test_the_end_of_the_process_waits_longer_than_tensorflow_for_a_close():
  """A close returns after 10 s where a server does not answer; one that returns later aborts."""
  assert compat.Timing().late_close_limit > 10 + 2


def test_a_fork_does_not_wait_at_its_end_for_a_call_of_its_parent(set_timing):
  set_timing(bounded, late_close_limit=1000.0)  # no test lasts for it
  with bounded.awaited_at_exit():
    child = os.fork()
    if not child:
      bounded._await_calls()
      os._exit(1)
    assert os.waitpid(child, 0)[1] >> 8 == 1


def test_a_fork_ends_although_another_thread_held_the_lock():
  held, forked = threading.Event(), threading.Event()

  def hold():
    with bounded._has_ended:
      held.set()
      forked.wait()

  thread = threading.Thread(target=hold)
  thread.start()
  held.wait()
  child = os.fork()
  if not child:
    signal.alarm(60)  # it would wait for the lock without a limit
    bounded._await_calls()
    os._exit(0)
  forked.set()
  thread.join()
  assert os.waitpid(child, 0)[1] == 0
