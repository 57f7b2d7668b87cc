"""A session that its caller can always leave.

`tf.Session.run` and `close` block in C++, and no Python signal handler runs during the call. On TF
1.15, a run on a ps that died never returns. On TF 2.21, the close of such a session never returns,
and neither does the interpreter's exit, which closes the session again. `BoundedSession` is a
`tf.Session` with five changes:

1. A helper thread for each calling thread makes every run, while the caller waits in Python, where
   signals arrive (about 0.05 ms per run).
2. `abort(error)` frees all callers immediately: their runs raise that error. The helper threads
   remain until the ps answers or the process ends.
3. `close()` returns within its limit. A session that does not close remains until the process ends,
   and its destructor does nothing. The end of the process waits again for a late close, because a
   close that returns while the interpreter exits aborts the process.
4. A run that TensorFlow 2 refuses by mistake is repeated (compat/session_runs.py).
5. Repeated fetches are analysed once (compat/session_runs.py).
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import weakref
from typing import Any, Callable, Mapping, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster.bounded import awaited_at_exit
from tf1ps.compat import TIMING, PreparedRuns, can_prepare, retry_refused_run
from tf1ps.graph import fed_stand_ins

_ABORTED = object()


class BoundedSession(tf.Session):
  """A `tf.Session` whose run can be aborted and whose close is bounded.

  Attributes:
    refusals: the number of runs that TensorFlow refused by mistake and that were repeated.
    close_limit: seconds that `close` may take.
    on_long_run: called with the graph and the fetches of a run that has lasted `TIMING.long_run`
      seconds; or None.
  """

  def __init__(self, target: str = "", graph: Optional[tf.Graph] = None,
               config: Optional[tf.ConfigProto] = None,
               close_limit: float = TIMING.session_close_limit,
               on_close: Optional[Callable[[], None]] = None,
               explain: Optional[Callable[[BaseException], BaseException]] = None):
    """Creates the session.

    Args:
      target: as for `tf.Session`.
      graph: as for `tf.Session`.
      config: as for `tf.Session`.
      close_limit: seconds that `close` may take.
      on_close: called once, when the session is closed, before TensorFlow closes it.
      explain: called with the error of a run; returns the error to raise.
    """
    self._on_close, self._explain = on_close, explain
    self.close_limit = close_limit
    self._error_factory: Optional[Callable[[], BaseException]] = None
    self._lock = threading.Lock()
    self._helpers: weakref.WeakSet = weakref.WeakSet()
    self._local = threading.local()
    self._is_closed = False
    self._is_held = False
    self._has_lost = False  # whether a task is lost, whose part of the session no close reaches
    self._may_delete = False
    self.refusals = 0
    self.on_long_run = None
    self._prepared = PreparedRuns()
    super().__init__(target, graph, config)

  def run(self, fetches: Any, feed_dict: Optional[Mapping[Any, Any]] = None,
          options: Optional[tf.RunOptions] = None,
          run_metadata: Optional[tf.RunMetadata] = None) -> Any:
    """Like `tf.Session.run`; raises the error of `abort` if `abort` is called during the run."""
    return self._delegate(fetches, self._run_now, fetches, feed_dict, options, run_metadata)

  def make_callable(self, fetches: Any, feed_list: Optional[Sequence[tf.Tensor]] = None,
                    accept_options: bool = False) -> Callable[..., Any]:
    """Like `tf.Session.make_callable`, with runs that can be aborted."""
    # make_callable sends the graph to the master, which may not answer, so a helper calls it.
    more = fed_stand_ins(self.graph, feed_list or ())
    # TensorFlow treats an empty list differently from None.
    feeds = [*(feed_list or ()), *more] if more else feed_list
    function = self._delegate(fetches, super().make_callable, fetches, feeds, accept_options)
    places = [list(feed_list or ()).index(key) for key in more.values()]
    return lambda *args, **kwargs: self._delegate(
      fetches, function, *args, *[args[place] for place in places], **kwargs)

  def abort(self, error_factory: Callable[[], BaseException]) -> None:
    """Frees every caller of `run`, now and later, with an error from the factory."""
    with self._lock:
      # Under the lock: the caller of a helper that is not yet in the list sees the factory.
      if self._error_factory is None:
        self._error_factory = error_factory
      helpers = list(self._helpers)
    for helper in helpers:
      helper.outbox.put((_ABORTED, None))

  @property
  def is_aborted(self) -> bool:
    return self._error_factory is not None

  @property
  def is_running(self) -> bool:
    """Whether a caller waits for a run at this moment."""
    with self._lock:
      return any(helper.is_busy for helper in self._helpers)

  def close(self) -> None:
    """Closes the session within the limit; a session that does not close in time remains."""
    with self._lock:
      if self._is_closed:
        return
      self._is_closed = True
    self._prepared.clear()
    if self._on_close is not None:
      self._on_close()
    if not self._is_held:
      self._close_within()

  def hold_close(self) -> None:
    """Makes `close` leave TensorFlow's session open until `finish_close`, for last calls.

    While TensorFlow closes a session, every other session of this process's server waits. On 2.21
    they may wait for up to a minute, if an iterator's autotuning thread does not wake (see the room
    pipeline).
    """
    self._is_held = True

  def finish_close(self) -> None:
    """Closes, within the limit, a session whose close was held."""
    with self._lock:
      held, self._is_held = self._is_held and self._is_closed, False
    if held:
      self._close_within()

  def _close_within(self):
    closer = threading.Thread(target=self._close_now, daemon=True, name="tf1ps: close a session")
    closer.start()
    closer.join(TIMING.aborted_close_limit if self.is_aborted or self._has_lost
                else self.close_limit)
    self._may_delete = not closer.is_alive()
    if closer.is_alive():
      self.abort(lambda: tf.errors.CancelledError(None, None, "the session was closed"))

  def _close_now(self):
    # The close of an aborted session may never return.
    with contextlib.nullcontext() if self.is_aborted else awaited_at_exit():
      try:
        super().close()
      except tf.errors.OpError:
        pass  # a session that its servers do not know any more is closed

  def __del__(self):
    # TensorFlow's destructor closes without a limit, even while the interpreter exits.
    if getattr(self, "_may_delete", False) and not sys.is_finalizing():
      super().__del__()

  def _run_now(self, fetches, feed_dict, options, run_metadata):
    """Makes a run in the helper's thread; even its preparation sends the graph to the master."""
    if feed_dict:
      more = fed_stand_ins(self.graph, feed_dict)
      feed_dict = {**feed_dict, **{name: feed_dict[key] for name, key in more.items()}}
    prepared = None
    if run_metadata is None and can_prepare(feed_dict, options):
      prepared = self._prepared.find(self, super().make_callable, fetches)
    if prepared is not None:
      return prepared()
    return super().run(fetches, feed_dict, options, run_metadata)

  def _delegate(self, fetches, function, *args, **kwargs):
    helper = getattr(self._local, "helper", None) or self._add_helper()
    if self._error_factory is not None:
      raise self._error_factory()
    if self._is_closed:
      raise RuntimeError("Attempted to use a closed Session.")
    helper.is_busy = True
    try:
      helper.inbox.put((self._run_again, (function,) + args, kwargs))
      value, error = helper.answer(lambda: self._explain_long_run(fetches))
    except BaseException:
      # The caller stops waiting (KeyboardInterrupt), but the run continues. Its result is dropped.
      del self._local.helper
      raise
    finally:
      helper.is_busy = False
    if value is _ABORTED:
      raise self._error_factory()
    if error is None:
      return value
    self._has_lost = self._has_lost or isinstance(error, tf.errors.UnavailableError)
    meaning = error if self._explain is None else self._explain(error)
    if meaning is error:
      raise error
    raise meaning from error

  def _run_again(self, function, *args, **kwargs):
    return retry_refused_run(function, *args, on_refusal=self._count_refusal, **kwargs)

  def _explain_long_run(self, fetches):
    if self.on_long_run is not None:
      self.on_long_run(self.graph, fetches)

  def _count_refusal(self):
    with self._lock:
      self.refusals += 1

  def _add_helper(self) -> "_Helper":
    helper = _Helper()
    with self._lock:
      self._helpers.add(helper)
    self._local.helper = helper
    return helper


class _Helper:
  """Makes the runs of a calling thread, its only owner; the helper's own thread ends with it."""

  def __init__(self):
    self.inbox = queue.SimpleQueue()
    self.outbox = queue.SimpleQueue()
    self.is_busy = False
    threading.Thread(target=_make_runs, args=(self.inbox, self.outbox), daemon=True,
                     name="tf1ps: session.run").start()

  def answer(self, on_long):
    """Waits for the result of the run: (value, error)."""
    waited = 0.0
    while True:
      try:
        return self.outbox.get(timeout=TIMING.call_poll_interval)
      except queue.Empty:
        before, waited = waited, waited + TIMING.call_poll_interval
        # Between two waits, Python runs the handler of a signal that came just before the wait.
        if before < TIMING.long_run <= waited:
          on_long()

  def __del__(self):
    self.inbox.put(None)


def _make_runs(inbox, outbox):
  while True:
    job: Optional[tuple] = inbox.get()
    if job is None:
      return
    function, args, kwargs = job
    try:
      result = (function(*args, **kwargs), None)
    except BaseException as error:
      result = (None, error)
    # No reference may outlive the run here: a kept error would keep its whole stack.
    job = function = args = kwargs = None
    outbox.put(result)
    result = None
