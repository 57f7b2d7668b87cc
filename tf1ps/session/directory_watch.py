"""The chief's thread for its run's directory.

After each heartbeat of the chief, the thread

1. writes the names of the workers that have done their part, and then tells the ended workers that
   the chief knows this, so that they may leave;
2. writes that the run is alive, at intervals;
3. looks for another chief in the directory, and for the evaluator's request to end the run.

A disk that does not answer, such as that of an NFS server that is restarted, stops this thread. The
heartbeats continue, so no other task takes the chief for lost.
"""

from __future__ import annotations

import logging
import threading
from typing import Callable

from tf1ps.compat import TIMING
from tf1ps.session.member_watch import MemberWatch
from tf1ps.session.run_directory import DirectoryInUseError, RunDirectory
from tf1ps.state import Heartbeat

_log = logging.getLogger("tf1ps")


class DirectoryWatch:
  """Watches the directory of the chief's run in a thread.

  Attributes:
    stop_reason: why the evaluator asks for the end of the run, or "".
  """

  def __init__(self, directory: RunDirectory, heartbeat: Heartbeat, members: MemberWatch,
               find_run_id: Callable[[], str], at_loss: Callable[[BaseException], None]):
    """Prepares; `start` starts the thread.

    Args:
      directory: the directory of the run.
      heartbeat: the chief's heartbeat.
      members: the chief's watch of the other members.
      find_run_id: returns the id of the run, or "" before it is known.
      at_loss: called with a DirectoryInUseError if another chief has taken the directory.
    """
    self._directory, self._heartbeat, self._members = directory, heartbeat, members
    self._find_run_id, self._at_loss = find_run_id, at_loss
    self.stop_reason = ""
    self._has_beaten, self._stopped = threading.Event(), False
    self._thread = threading.Thread(
      target=self._watch, daemon=True, name="tf1ps: directory of the run")

  def start(self) -> None:
    """Starts the thread, unless it has been started."""
    if self._thread.ident is None:
      self._thread.start()

  def note_beat(self) -> None:
    """Notes that the chief has read the heartbeats of the others."""
    self._has_beaten.set()

  def stop(self) -> None:
    """Ends the thread, but waits only for a short time for a disk that does not answer."""
    self._stopped = True
    self._has_beaten.set()
    if self._thread.is_alive():
      self._thread.join(TIMING.thread_end_limit)

  def _watch(self):
    while not self._stopped:
      self._look()
      self._has_beaten.wait(TIMING.heartbeat_interval)  # the control task may be silent
      self._has_beaten.clear()

  def _look(self):
    run_id, step = self._find_run_id(), self._heartbeat.get("global_step")
    self._members.answer_ended(
      run_id, lambda is_done: self._directory.note_done(run_id, step, is_done))
    try:
      self._directory.beat(run_id, step)
    except DirectoryInUseError as error:
      self._at_loss(error)
    reason = "" if self.stop_reason else self._directory.stop_request(run_id)
    if reason:
      _log.info("the evaluator asks for the end of the run: %s", reason)
      self._heartbeat.set(stop=reason)
      self._heartbeat.try_beat()  # before the chief itself ends, so that the others know the reason
      self.stop_reason = reason
