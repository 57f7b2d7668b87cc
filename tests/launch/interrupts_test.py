from __future__ import annotations

import multiprocessing.connection
import os
import signal
import threading

import pytest

from tf1ps.launch import interrupts


def wait_and_take(caught):
  assert multiprocessing.connection.wait([caught], 60) == [caught]
  caught.take()


def test_signals_are_taken_in_order_and_handlers_put_back():
  before = [signal.getsignal(number) for number in (1, 2, 15)]
  with interrupts.Interrupts() as caught:
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
    with interrupts.Interrupts() as caught:
      os.kill(os.getpid(), signal.SIGUSR1)
      wait_and_take(caught)
      assert (caught.received, heard) == ([], [signal.SIGUSR1])
  finally:
    signal.signal(signal.SIGUSR1, old)


@pytest.mark.parametrize("ignored, received", [(False, [signal.SIGHUP]), (True, [])])
def test_nohup_stays_in_force(ignored, received):
  old = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
  try:
    with interrupts.Interrupts() as caught:
      os.kill(os.getpid(), signal.SIGHUP)
      multiprocessing.connection.wait([caught], 0.05 if ignored else 60)
      caught.take()
      assert caught.received == received
  finally:
    signal.signal(signal.SIGHUP, old)


def test_another_thread_is_refused():
  errors = []

  def enter():
    try:
      interrupts.Interrupts().__enter__()
    except ValueError as error:
      errors.append(str(error))

  thread = threading.Thread(target=enter)
  thread.start()
  thread.join()
  assert errors == ["Signals reach the main thread only: start the launcher there."]
