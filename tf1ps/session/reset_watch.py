"""Recovers from a reset of the job's container.

A reset (state/reset.py) first writes a record of its start. Then

1. the heartbeat of each task of the job reads the record (`look`) and ends the session;
2. the creator of the next session answers the reset, and waits until the reset is done (`wait`);
3. the chief restores the last checkpoint, as after the loss of a ps.

A step may miss its variables before the heartbeat reads the record: `explain` gives the reason.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import LOST_STATE_ERRORS, TIMING
from tf1ps.state import (
  ControlError,
  ControlRecord,
  Heartbeat,
  ResetNotice,
  reset_notice,
)

_log = logging.getLogger("tf1ps")


class ResetWatch:
  """Watches for resets of a container, for each session in turn."""

  def __init__(self, heartbeat: Heartbeat,
               read: Callable[[], Dict[str, ControlRecord]], container: str):
    """Creates the watch; `read` returns the control records, including the records of resets."""
    self._heartbeat, self._read, self._container = heartbeat, read, container
    self._known: Optional[ResetNotice] = None  # the last notice before the session began
    self._callback: Optional[Callable[[BaseException], None]] = None
    self._has_said = False  # whether the warning about this session was logged

  def begin(self, callback: Optional[Callable[[BaseException], None]]) -> None:
    """Begins to watch for a new session, or ends the watch (None).

    After a reset of the container, `callback` gets an AbortedError.
    """
    self._known = None if callback is None else self._last()
    self._callback = callback
    self._has_said = False

  def look(self, records: Dict[str, ControlRecord]) -> None:
    """Calls the callback if the control records have a new reset."""
    known, callback = self._known, self._callback
    if None not in (known, callback) and reset_notice(records, self._container) != known:
      callback(self._lost())

  def wait(self, limit: float, interrupted: Callable[[], None]) -> None:
    """Waits for the end of a current reset; raises ControlError.

    After `limit` seconds, or `TIMING.reset_wait` if that is longer, the process that resets counts
    as dead. `interrupted` raises an error to end the wait.
    """
    until = time.monotonic() + max(limit, TIMING.reset_wait)
    notice = self._last()
    while not notice.done and time.monotonic() < until:
      self._heartbeat.set(reset=notice.token)
      self._heartbeat.beat()
      interrupted()
      time.sleep(TIMING.fast_poll_interval)
      notice = self._last()

  def explain(self, error: BaseException) -> BaseException:
    """Returns an AbortedError for an error that a reset caused, else the error itself."""
    if self._known is None or not _may_be_a_reset(error):
      return error
    try:
      notice = self._last()
    except ControlError:
      return error
    if notice == self._known and notice.done:
      return error
    return self._lost()

  def _last(self) -> ResetNotice:
    return reset_notice(self._read(), self._container)

  def _lost(self) -> tf.errors.AbortedError:
    text = "%s was reset" % (
      "container %s" % self._container if self._container else "the default container")
    if not self._has_said:
      self._has_said = True
      _log.warning("%s: this session ends", text)
    return tf.errors.AbortedError(None, None, text)


def _may_be_a_reset(error) -> bool:
  # InvalidArgument: the container was reset during a step; OutOfRange: the queue that a session run
  # waited for was closed.
  return isinstance(
    error, LOST_STATE_ERRORS + (tf.errors.InvalidArgumentError, tf.errors.OutOfRangeError))
