"""`tf1ps.Coordinator`, a drop-in for `tf.train.Coordinator`.

It has the same arguments and methods, with these differences:

1. `join` raises the error that ended a queue runner, not the OutOfRangeError that it caused.
2. `join` does not wait for a queue runner's thread that is in Python or in a slow read. It returns
   within a second of the stop, and does not report these threads as "still running".
3. `should_stop` raises an error if the loop would hang because the graph has queue runners and none
   of them was started.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Iterable, List, Optional, Sequence, Set, Type, Union

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, DropIn
from tf1ps.pipeline import queue_runners

_STOCK_THREAD = "QueueRunnerThread-"  # how the names of TensorFlow's own threads begin


class Coordinator(queue_runners.RunnerCoordinator, metaclass=DropIn):
  """A coordinator of threads, with the differences that the module's docstring lists."""

  _replaces = tf.train.Coordinator

  def __init__(self, clean_stop_exception_types: Optional[Sequence[Type[BaseException]]] = None, *,
               check_queue_runners: bool = True):
    """Creates the coordinator, like TensorFlow's.

    With `check_queue_runners`, `should_stop` raises in the thread that creates the coordinator, if
    the queue runners of the present default graph were never started.
    """
    super().__init__(clean_stop_exception_types)
    self._failures: List[Any] = []
    self._runner_threads: Set[queue_runners.RunnerThread] = set()
    self._other_threads: Set[threading.Thread] = set()
    self._maker = threading.current_thread()
    self._graph = None
    if check_queue_runners and not tf.executing_eagerly():
      self._graph = tf.get_default_graph()
      # So that TensorFlow's own start_queue_runners starts ours.
      queue_runners.adopt_queue_runners(self._graph, track=False)

  def add_failures(self, failures: Any) -> None:
    """Called when queue runners start: `join` raises the error that ends them."""
    self._graph = None
    self._failures.append(failures)

  def register_thread(self, thread: threading.Thread) -> None:
    """Like `tf.train.Coordinator.register_thread`."""
    if isinstance(thread, queue_runners.RunnerThread):
      self._runner_threads.add(thread)
    else:
      self._other_threads.add(thread)
      super().register_thread(thread)

  def should_stop(self) -> bool:
    """Like TensorFlow's; RuntimeError if the graph has queue runners and none was started."""
    if self._graph is not None and threading.current_thread() is self._maker:
      self._check()
    return super().should_stop()

  def request_stop(self, ex: Union[BaseException, tuple, None] = None) -> None:
    """Like `tf.train.Coordinator.request_stop`; a queue runner's error takes precedence."""
    error = ex[1] if isinstance(ex, tuple) else ex
    if error is None or isinstance(error, (tf.errors.OutOfRangeError, tf.errors.CancelledError)):
      for failures in self._failures:
        if failures.error is not None:
          ex = (type(failures.error), failures.error, failures.error.__traceback__)
          break
    super().request_stop(ex)

  def join(self, threads: Optional[Iterable[threading.Thread]] = None,
           stop_grace_period_secs: float = 120, ignore_live_threads: bool = False) -> None:
    """Like `tf.train.Coordinator.join`, without a wait for queue runners that do not stop."""
    threads = set(threads or ())
    runners = self._runner_threads | {
      thread for thread in threads if isinstance(thread, queue_runners.RunnerThread)}
    while (any(thread.is_alive() for thread in runners)
           and not self.wait_for_stop(TIMING.local_poll_interval)):
      if self._have_failed(runners, (threads - runners) | self._other_threads):
        self.request_stop()
    until = time.monotonic() + TIMING.runner_threads_end_limit
    for thread in runners:
      if thread.is_alive():
        thread.join(max(0.0, until - time.monotonic()))
    super().join(threads - runners, stop_grace_period_secs, ignore_live_threads)

  def _have_failed(self, runners, others):
    """Whether a runner has failed, and no thread still enqueues or consumes elements."""
    return any(failures.error is not None for failures in self._failures) and not any(
      thread.is_alive()
      for thread in [runner for runner in runners if runner.enqueues] + list(others))

  def _check(self):
    graph, self._graph = self._graph, None
    runners = graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
    if not runners or super().should_stop():
      return
    if any(isinstance(runner, queue_runners.Runner) and runner.was_started
           for runner in runners) or any(
        thread.name.startswith(_STOCK_THREAD) for thread in threading.enumerate()):
      return
    raise RuntimeError(
      "the graph has %d queue runners, such as that of %s, and none was started, so that the first "
      "dequeue would wait forever. Call tf1ps.start_queue_runners(sess, coord) before the loop, or "
      "give check_queue_runners=False to the Coordinator." % (len(runners), runners[0].name))
