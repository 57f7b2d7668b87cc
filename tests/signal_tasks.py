"""What the tests of signals run as processes: main threads that are blocked in TensorFlow."""
from __future__ import annotations

import os
import resource
import signal
import threading
import time

import tensorflow.compat.v1 as tf

from tests.cluster_tasks import say
from tests.session_tasks import EmptyQueue
from tf1ps.cluster import signals


def leave_when_told(limit):
  """Blocks in a run of a stock session; a signal closes the session."""
  queue = EmptyQueue("stock")

  def on_signal(signum):
    say("signal", signum, threading.current_thread() is not threading.main_thread())
    queue.session.close()

  watch = signals.SignalWatch(on_signal, limit)
  with watch:
    try:
      queue.wait()
    except tf.errors.CancelledError:
      say("cancelled")
  say("handlers", *[signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler)
                    for n in (signal.SIGINT, signal.SIGTERM)], signal.set_wakeup_fd(-1))
  return 100 + watch.signum


def leave_with_many_files(limit):
  """As `leave_when_told`, in a process whose next descriptor is above 1023."""
  _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
  resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
  while os.dup(0) < 1024:
    pass
  return leave_when_told(limit)


def stay_blocked(limit, extension=0.0):
  """Blocks in a run of a stock session, whatever comes; a signal may put the end off."""
  queue = EmptyQueue("stock")

  def on_signal(signum):
    say("signal", signum)
    if extension:
      watch.extend(extension)

  watch = signals.SignalWatch(on_signal, limit)
  with watch:
    queue.wait()


def linger_after_stop(limit):
  """Stops the watch after a signal, and then blocks."""
  queue = EmptyQueue("stock")
  come = threading.Event()
  with signals.SignalWatch(lambda signum: come.set(), limit):
    say("ready")
    come.wait()
  queue.wait()


def with_a_handler_of_its_own():
  """Enters one watch twice; meanwhile the program gets a handler of SIGTERM."""
  heard = []

  def own(signum, frame):
    heard.append("own %d" % signum)

  watch = signals.SignalWatch(lambda signum: heard.append("watch %d" % signum), 60.0)
  with watch:
    pass
  signal.signal(signal.SIGTERM, own)
  with watch:
    say("ready")
    _wait_for(lambda: heard == ["own 15"])
    say("own 15", watch.signum)
    _wait_for(lambda: heard == ["own 15", "watch 2"])
    say("watch 2", watch.signum)
  say("kept", signal.getsignal(signal.SIGTERM) is own,
      signal.getsignal(signal.SIGINT) is signal.default_int_handler)


def flood():
  """Gets many signals of another kind, which the watch must not take for its own."""
  seen, heard = [], []
  signal.signal(signal.SIGUSR1, lambda *unused: seen.append(1))
  with signals.SignalWatch(heard.append, 60.0):
    say("ready")
    _wait_for(lambda: len(seen) >= 20)
    say("heard", len(heard))
    _wait_for(lambda: heard)
  say("heard", *heard)


def _wait_for(condition):
  until = time.monotonic() + 60.0
  pause = threading.Event()
  while not condition():
    assert time.monotonic() < until
    pause.wait(0.01)


def make_another_error_of_an_exit():
  """What a program may do with the exit of a signal: the watch still knows the signal."""
  watch, other = signals.ExitWatch(), None
  with watch:
    try:
      say("ready")
      threading.Event().wait(60)
    except SystemExit as error:
      other = ValueError(str(error))
  say("number", watch.number, "error", repr(other))
