from __future__ import annotations

import multiprocessing.connection
import os
import resource
import signal
import threading
import time

import pytest

from tests import harness, needs, signal_tasks
from tf1ps.cluster import signals

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


def blocked(start, function, *args):
  """Starts a task and waits until its main thread is blocked in a run."""
  task = start("task", function, *args)
  task.wait_for("blocked")
  return task


@BOTH
def test_a_signal_frees_a_blocked_main_thread(start, number):
  task = blocked(start, signal_tasks.leave_when_told, 1000.0)  # it would leave by force so late
  task.signal(number)
  task.wait_for("signal %d True" % number)
  task.wait_for("cancelled")
  assert task.wait_for("handlers") == "handlers True True -1"
  assert task.wait() == 100 + number


def test_a_signal_is_heard_in_a_process_with_many_files(start):
  _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
  if 0 <= most < 1200:
    needs.skip("many open files")
  task = blocked(start, signal_tasks.leave_with_many_files, 1000.0)
  task.signal(signal.SIGTERM)
  assert task.wait() == 100 + signal.SIGTERM


@BOTH
def test_the_process_leaves_by_force_at_the_limit(start, number):
  task = blocked(start, signal_tasks.stay_blocked, 0.6)
  began = time.monotonic()
  task.signal(number)
  assert task.wait() == 128 + number
  assert time.monotonic() - began > 0.5
  assert "signal %d" % number in task.lines
  assert "still here 1 s after signal %d: leaving by force" % number in task.lines
  assert "session_tasks.py" in task.output and "in wait" in task.output  # the stacks


@pytest.mark.parametrize("first, second", [(signal.SIGINT, signal.SIGINT),
                                           (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_ends_it_at_once(start, first, second):
  task = blocked(start, signal_tasks.stay_blocked, 1000.0)  # it would leave by force so late
  task.signal(first)
  task.wait_for("signal %d" % first)
  task.signal(second)
  assert task.wait() == 128 + first
  assert task.last_line == "a second signal: leaving at once"


def test_the_end_by_force_can_be_put_off(start):
  task = blocked(start, signal_tasks.stay_blocked, 0.2, 0.9)
  began = time.monotonic()
  task.signal(signal.SIGTERM)
  assert task.wait() == 128 + signal.SIGTERM
  assert time.monotonic() - began > 1.0
  task.wait_for("still here 1 s after")


def test_the_end_by_force_stays_due_after_stop(start):
  task = start("task", signal_tasks.linger_after_stop, 0.7)
  task.wait_for("ready")
  task.signal(signal.SIGTERM)
  assert task.wait() == 128 + signal.SIGTERM
  assert "blocked" in task.lines and "leaving by force" in task.output


def test_it_can_be_entered_again_and_handlers_of_the_program_stay(start):
  task = start("task", signal_tasks.with_a_handler_of_its_own)
  task.wait_for("ready")
  task.signal(signal.SIGTERM)
  assert task.wait_for("own 15") == "own 15 None"
  task.signal(signal.SIGINT)
  assert task.wait_for("watch 2") == "watch 2 2"
  assert task.wait() == 0, task.output
  assert task.last_line == "kept True True"


def test_a_watch_that_ends_the_main_thread_knows_the_signal(start):
  task = start("task", signal_tasks.make_another_error_of_an_exit)
  task.wait_for("ready")
  task.signal(signal.SIGTERM)
  assert task.wait_for("number") == "number 15 error ValueError('143')"


def test_signals_of_another_kind_are_not_its_own(start):
  task = start("task", signal_tasks.flood)
  task.wait_for("ready")
  harness.wait_until(lambda: task.signal(signal.SIGUSR1) or "heard 0" in task.lines)
  task.signal(signal.SIGINT)
  task.wait_for("heard 2")
  assert task.wait() == 0


def test_outside_of_the_main_thread_nothing_happens():
  handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
  threads = []

  def enter():
    with signals.SignalWatch(print, 1.0) as watch:
      threads.extend(t.name for t in threading.enumerate() if t.name == "tf1ps: signals")
      watch.extend(1.0)
      assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)] == handlers
    threads.append("left")

  thread = threading.Thread(target=enter)
  thread.start()
  thread.join(60)
  assert threads == ["left"]


@pytest.mark.parametrize("limit", [0, -1.0])
def test_a_limit_that_is_none(limit):
  with pytest.raises(ValueError, match="limit must be a positive number of seconds"):
    signals.SignalWatch(print, limit)


def test_a_queue_may_run_a_handler_in_the_main_thread():
  with pytest.raises(SystemExit) as error:
    with signals.SignalQueue(signals.raise_exit):
      os.kill(os.getpid(), signal.SIGHUP)
      threading.Event().wait(60)
  assert error.value.code == 128 + signal.SIGHUP


def test_a_watch_without_a_limit_ends_nothing_by_force():
  heard = []
  with signals.SignalWatch(heard.append, replaces_handlers=True) as watch:
    os.kill(os.getpid(), signal.SIGTERM)
    harness.wait_until(lambda: heard == [signal.SIGTERM])
    os.kill(os.getpid(), signal.SIGTERM)
  assert (watch.signum, heard) == (signal.SIGTERM, [signal.SIGTERM])
  assert signal.set_wakeup_fd(-1) == -1


# A queue.


def wait_and_take(caught):
  assert multiprocessing.connection.wait([caught], 60) == [caught]
  caught.take()


def test_signals_are_taken_in_order_and_handlers_put_back():
  before = [signal.getsignal(number) for number in (1, 2, 15)]
  with signals.SignalQueue() as caught:
    caught.take()
    assert caught.received == []
    os.kill(os.getpid(), signal.SIGTERM)
    wait_and_take(caught)
    os.kill(os.getpid(), signal.SIGINT)
    wait_and_take(caught)
    assert caught.received == [signal.SIGTERM, signal.SIGINT]
    assert multiprocessing.connection.wait([caught], 0) == []
  assert [signal.getsignal(number) for number in (1, 2, 15)] == before
  assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_others_handle_is_none_of_ours():
  heard = []
  old = signal.signal(signal.SIGUSR1, lambda number, frame: heard.append(number))
  try:
    with signals.SignalQueue() as caught:
      os.kill(os.getpid(), signal.SIGUSR1)
      wait_and_take(caught)
      assert (caught.received, heard) == ([], [signal.SIGUSR1])
  finally:
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize("ignored, received", [(False, [signal.SIGHUP]), (True, [])])
def test_nohup_stays_in_force(ignored, received):
  old = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
  try:
    with signals.SignalQueue() as caught:
      os.kill(os.getpid(), signal.SIGHUP)
      multiprocessing.connection.wait([caught], 0.05 if ignored else 60)
      caught.take()
      assert caught.received == received
  finally:
    signal.signal(signal.SIGHUP, old)


def test_a_queue_in_another_thread_is_refused():
  errors = []

  def enter():
    try:
      signals.SignalQueue().__enter__()
    except ValueError as error:
      errors.append(str(error))

  thread = threading.Thread(target=enter)
  thread.start()
  thread.join()
  assert errors == ["signals reach the main thread only: call this from the main thread"]
