"""The life of a training session: what happens round its steps, from its creation to its close.

`SessionLife` ties together what a `MonitoredSession` of ours needs beside its hooks:

at every step   `LifeHook` counts the step into the heartbeat, and ends the loop after a signal
at a signal     the loop has two seconds to leave by itself; then the chief saves from a session of
                its own, and the blocked run is ended
at the end      the chief waits for the other workers before the last checkpoint, and releases the
                ps after it; the other workers report and leave
"""

from __future__ import annotations

import logging
import threading
from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, SignalWatch, TaskUnavailableError, probe_tasks
from tf1ps.compat import TIMING, error_line
from tf1ps.session import ending, session_creator
from tf1ps.session import participation as participation_lib
from tf1ps.state import MEMBER_DONE, MEMBER_FAILED

_log = logging.getLogger("tf1ps")


class SessionLife:
  """What happens round the steps of one training session.

  Attributes:
    part: this task's part in the run, or None where nothing is known of a cluster.
    signum: the signal that ends the session, or None.
    end_timeout: seconds without progress until nobody waits for the others any more.
    problems: a sentence for each other worker that did not do its part.
    stops_by_vote: whether another hook ends the loop after a signal, for all workers together.
  """

  def __init__(self, part: Optional[participation_lib.Participation], tracker, end_timeout: float,
               release: bool = True):
    """Creates the life; `enter` begins it.

    Args:
      part: this task's part in the run, or None.
      tracker: the `global_step.GlobalStepTracker`.
      end_timeout: as for `ending.wait_for_workers`.
      release: whether the end of the session is the end of the job, and releases the ps.
    """
    self.part = part
    self.tracker = tracker
    self.creator = None
    self.saver = None
    self.summary_dir = None  # of event files, or None
    self.examples = None  # a callable that returns this worker's examples, or None
    self.problems: List[str] = []
    self.stops_by_vote = False
    self.end_timeout = end_timeout
    self._release = release
    self._closing = threading.Event()
    self._signals = SignalWatch(self._on_signal, TIMING.force_exit_limit)
    self._ended = False

  @property
  def is_chief(self) -> bool:
    return self.part is not None and self.part.is_chief

  @property
  def signum(self) -> Optional[int]:
    return self._signals.signum

  def enter(self) -> None:
    """Begins to watch signals."""
    self._signals.__enter__()

  def interrupted(self) -> None:
    """Raises SystemExit after a signal; for the waits in Python."""
    if self.signum is not None:
      self._closing.set()
      raise SystemExit(128 + self.signum)

  def count(self) -> None:
    """Puts this task's steps and examples into the heartbeat."""
    examples = self.examples() if self.examples is not None else 0
    self.part.heartbeat.set(step=self.tracker.own_steps, examples=examples)

  def on_answer(self, step: int, own_steps: int) -> None:
    """The tracker's: puts the global step into the heartbeat."""
    if self.part is not None:
      self.part.heartbeat.set(global_step=step)

  # The end.

  def before_close(self, call) -> None:
    """The chief waits for the others, and keeps its session alive meanwhile."""
    if self.is_chief and self.signum is None:
      self._wait_for_workers(call)
    self._closing.set()
    if self.saver is not None and self._holders_answer():
      self._signals.extend(TIMING.save_limit)

  def _holders_answer(self) -> bool:
    """Whether there is somebody to save from: a stopped ps would only hold up the end."""
    return self.part is None or all(
      one.is_up for one in probe_tasks(self.part.holders, timeout=TIMING.watch_probe_limit))

  def _wait_for_workers(self, call):
    def each_round():
      self.interrupted()
      session = self.creator.session
      if session is not None and session.is_aborted:
        # A ps was restarted: the others wait for this chief to restore it.
        call(self.tracker.ask)

    try:
      self.problems = ending.wait_for_workers(self.part, self.end_timeout, each_round)
    except SystemExit:
      return  # a signal: what is there is saved, and nobody waited for
    for problem in self.problems:
      _log.error("%s", problem)

  def hold_close(self) -> None:
    """Leaves TensorFlow's own close of the session to the very end of this task's part."""
    session = self.creator.session
    if self.part is not None and session is not None:
      session.hold_close()
      self.part.at_stop(session.finish_close)

  def after_close(self, error: Optional[BaseException]) -> None:
    """Reports this task's end and lets go; raises what the exit code must tell."""
    if self._ended:
      return
    self._ended = True
    self._closing.set()
    signum = self.signum
    try:
      self._flush_summaries()
      if self.part is not None:
        self._report(error, signum)
    finally:
      self._signals.stop()
    if signum is not None and not isinstance(error, SystemExit):
      raise SystemExit(128 + signum)
    if self.problems and error is None and self._release:
      raise ending.JobFailedError("the job failed: " + "; ".join(self.problems))

  def _flush_summaries(self):
    # No hook is told of an end by an error, and what led to it is worth seeing.
    if self.summary_dir is not None and self.creator.sessions:
      try:
        tf.summary.FileWriterCache.get(self.summary_dir).flush()
      except tf.errors.OpError as error:
        _log.warning("the last summaries were not written: %s", error_line(error))

  def _report(self, error, signum):
    part = self.part
    part.on_new_run(None)
    self.count()
    if signum is not None:
      part.report(MEMBER_FAILED, "ended by signal %d" % signum,
                  limit=TIMING.report_limit_after_signal)
    elif error is not None:
      reason = "%s: %s" % (type(error).__name__, error_line(error))
      # Who would hear it may be just what is lost.
      is_lost = isinstance(error, (session_creator.TaskLostError, TaskUnavailableError))
      part.report(MEMBER_FAILED, reason, limit=TIMING.report_limit_after_loss if is_lost
                  else TIMING.report_limit_after_failure)
      if part.is_chief and isinstance(error, tf.train.NanLossDuringTrainingError):
        part.release(failed=True)  # a state of NaNs is nothing to go on with
    elif not part.is_chief:
      part.report(MEMBER_DONE, "")
    elif self._release:
      part.release()
      part.report(MEMBER_DONE, "")
    if self._release:
      part.stop()

  # Signals.

  def _on_signal(self, signum):
    _log.warning("signal %d: leaving", signum)
    if self._closing.wait(TIMING.leave_limit):
      return
    session = self.creator.session if self.creator is not None else None
    if session is None:
      return
    if self.saver is not None and not self.creator.is_creating and self._holders_answer():
      self._signals.extend(TIMING.save_limit)
      self._save_aside(session)
    if not self._closing.is_set():
      session.abort(lambda: SystemExit(128 + signum))

  def _save_aside(self, session):
    """Saves from a session of its own, while the main one is blocked."""
    aside = BoundedSession(session.sess_str, session.graph, self.creator.config)
    try:
      self.saver.save(aside, self.tracker.ask(aside))
    except Exception as error:  # whatever it is, the task must leave
      _log.error("the last state was not saved: %s", error_line(error))
    finally:
      aside.close()


class LifeHook(tf.train.SessionRunHook):
  """Stands last: every other hook has been told of the session, and has counted the step."""

  def __init__(self, life: SessionLife):
    self._life = life

  def after_create_session(self, session, coord):
    self._life.creator.is_creating = False

  def after_run(self, run_context, run_values):
    if self._life.part is not None:
      self._life.count()
    if self._life.signum is not None and not self._life.stops_by_vote:
      run_context.request_stop()
