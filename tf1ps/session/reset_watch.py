"""Recovers from a reset of the job's container.

A reset (state/reset.py) first writes a record that it begins. Then

1. the heartbeat of each task of the job reads the record (`look`) and ends the session;
2. the creator of the next session answers the reset, and waits until it is done (`wait`);
3. the chief restores the last checkpoint, as after the loss of a ps.

A step may miss its variables before the heartbeat finds the record: `explain` gives the reason.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING
from tf1ps.state import (
  GUARD_RESET,
  ControlError,
  ControlRecord,
  Heartbeat,
  ResetNotice,
  reset_notice,
)

_log = logging.getLogger("tf1ps")


class ResetWatch:
  """Watches for resets of one container, for one session after another."""

  def __init__(self, heartbeat: Heartbeat,
               read: Callable[[], Dict[str, ControlRecord]], container: str):
    """Creates the watch; `read` reads the control records, including those of resets."""
    self._heartbeat, self._read, self._container = heartbeat, read, container
    self._known: Optional[ResetNotice] = None  # the last one before the session began
    self._callback: Optional[Callable[[str], None]] = None
    self._has_said = False  # of this session

  def begin(self, callback: Optional[Callable[[str], None]]) -> None:
    """Begins to watch for a new session, or ends the watch (None).

    A reset of the container under this session calls `callback` with a sentence.
    """
    self._known = None if callback is None else self._last()
    self._callback = callback
    self._has_said = False

  def look(self, records: Dict[str, ControlRecord]) -> None:
    """Looks for a reset in the control records; calls the callback at a reset."""
    known, callback = self._known, self._callback
    if None not in (known, callback) and reset_notice(records, self._container) != known:
      callback(self._say())

  def wait(self, limit: float, interrupted: Callable[[], None]) -> None:
    """Waits for the end of a current reset; raises ControlError.

    After `limit` seconds, or `TIMING.reset_wait` if that is longer, the process of the reset counts
    as dead. `interrupted` raises to end the wait.
    """
    until = time.monotonic() + max(limit, TIMING.reset_wait)
    found = self._last()
    while not found.done and time.monotonic() < until:
      self._heartbeat.set(reset=found.token)
      self._heartbeat.beat()
      interrupted()
      time.sleep(TIMING.fast_poll_interval)
      found = self._last()

  def explain(self, error: BaseException) -> BaseException:
    """Returns an AbortedError for an error that a reset caused, else the error itself."""
    if self._known is None or not _may_be_a_reset(error):
      return error
    try:
      found = self._last()
    except ControlError:
      return error
    if found == self._known and found.done:
      return error
    return tf.errors.AbortedError(None, None, self._say())

  def _last(self) -> ResetNotice:
    return reset_notice(self._read(), self._container)

  def _say(self) -> str:
    text = "%s was reset" % (
      "container %s" % self._container if self._container else "the default container")
    if not self._has_said:
      self._has_said = True
      _log.warning("%s: this session ends", text)
    return text


def _may_be_a_reset(error) -> bool:
  # OutOfRange: a queue that a run waited for was closed.
  if isinstance(error, (tf.errors.FailedPreconditionError, tf.errors.NotFoundError,
                        tf.errors.OutOfRangeError)):
    return True
  return isinstance(error, tf.errors.InvalidArgumentError) and GUARD_RESET in error.message
