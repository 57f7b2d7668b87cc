"""Watches for a worker that sends heartbeats and makes no step, and says what it waits for.

A thread compares the worker's steps and examples. After `stall_after` seconds without progress

1. it prints the Python stack of every thread, with the thread's name;
2. it prints a line that begins with "stalled: " and says what the worker waits for. The launcher
   collects these lines of all tasks (launch/stalls.py), and a heartbeat takes the text to the other
   workers;
3. with --stall_after=X:fail, after the same time again, it ends the worker with `StalledError`. If
   the worker does not end because of the error, its process exits by force, with exit code 1.

A worker that waits for another worker prints the line and names that worker. It prints no stacks
and does not fail, because the other worker has stalled. Waits that have limits of their own do not
count: those for the start, for a new session after a failure, at the end, and after a signal. Nor
does the time in which this process was stopped.

`stalled` detects such a worker much sooner: when the current run has lasted longer than
`stalled_least` seconds, and much longer than the runs before it. The heartbeat and /readyz report
this.

Python does not show what TensorFlow waits for. The text comes from the place in the code where the
loop's thread is, from the state of a synchronous round, from the sizes of the input's queues, from
Python code of the program in any thread, and from probes of the servers.
"""

from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
import traceback
from typing import List, NamedTuple, Optional, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, LifecycleHook, call_within, leave_now, probe_tasks
from tf1ps.compat import EXIT_FAILED, TIMING, Error, is_installed_file
from tf1ps.replication import SyncReplicasHook
from tf1ps.session import Membership
from tf1ps.state import MEMBER_FAILED
from tf1ps.training.counts import Counts

_log = logging.getLogger("tf1ps")
_TF1PS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class Wait(NamedTuple):
  """What a worker waits for."""

  text: str
  is_for_others: bool = False  # other workers hold this worker up
  counts: bool = True  # False: the wait has a limit of its own


# By the module of a frame of the loop's thread.
_PLACES = {
  "tf1ps.checkpoint.saving": Wait("a save of the checkpoint"),
  "tf1ps.replication.clocks": Wait("slower workers (max_lead)", is_for_others=True),
  "tf1ps.training.warm_up": Wait("its start (warm_up)", is_for_others=True),
  "tf1ps.training.dynamic_ranges": Wait("data that other workers hold", is_for_others=True),
  "tf1ps.session.session_creator": Wait("a new session", counts=False),
  "tf1ps.session.ending": Wait("the end of the other workers", counts=False),
}
_RUN = "tf1ps.cluster.session"
_SLOWER, _LAST_RUNS = 10, 100  # a stalled run takes 10 times the slowest of the last 100 runs
_LOOP = "tf1ps.training.worker"


class StalledError(Error, RuntimeError):
  """This worker has made no step for too long (--stall_after=X:fail)."""


class StallWatch(LifecycleHook):
  """The watch of one worker: a hook of the loop, and a context manager around the session.

  Attributes:
    lifecycle: the `SessionLifecycle` of the loop; None before it.
  """

  def __init__(self, run: Membership, after: float, fails: bool, counts: Counts,
               hooks: List[tf.train.SessionRunHook]):
    """Prepares; the first session starts the watch.

    Args:
      run: this worker's membership of the run.
      after: seconds without a step until the watch reports a stall; 0: no watch.
      fails: whether a stall ends the worker.
      counts: the loop's ledger.
      hooks: the step's hooks; a `SyncReplicasHook` among them knows the round.
    """
    self._run, self._after, self._fails, self._counts = run, after, fails, counts
    self._sync = [hook for hook in hooks if isinstance(hook, SyncReplicasHook)]
    self._every = min(TIMING.heartbeat_interval, after / 4)
    self.lifecycle = self._loop = None  # the id of the loop's thread
    self._queues = []  # pairs of a queue's name and its size, a tensor
    self._run_began: Optional[float] = None
    self._took: List[float] = []  # the seconds of the last runs
    self._moved = ((), 0.0)  # the progress, and the time since which it has not changed
    self._stopped, self._has_ended = threading.Event(), threading.Event()
    self._thread: Optional[threading.Thread] = None

  def __enter__(self) -> "StallWatch":
    return self

  def __exit__(self, *unused):
    self._stopped.set()
    self._has_ended.set()

  def on_join(self, lifecycle):
    self.lifecycle = lifecycle

  def begin(self):
    for runner in tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS) if self._after else []:
      with tf.device(runner.queue.queue_ref.device):
        self._queues.append((runner.queue.name, runner.queue.size()))

  def before_run(self, run_context):
    self._run_began = time.monotonic()

  def after_run(self, run_context, run_values):
    self._took = [*self._took[1 - _LAST_RUNS:], time.monotonic() - self._run_began]
    self._run_began = None

  def stalled(self) -> Optional[Tuple[float, float]]:
    """Whether the current run lasts much longer than the runs before; any thread may call it.

    Returns:
      The seconds of the current run and of the slowest of the last runs. None if the current run
      does not last much longer, if no run has ended yet, or if this worker saves, or waits for
      other workers, for a session or for the end.
    """
    now, began, took = time.monotonic(), self._run_began, self._took
    if self._counts.progress != self._moved[0]:  # threads beside the loop make progress, too
      self._moved = (self._counts.progress, now)
    if began is None or not took or self._stopped.is_set():
      return None
    seconds = now - max(began, self._moved[1])
    if seconds <= max(TIMING.stalled_least, _SLOWER * max(took)) or any(
        _module(frame) in _PLACES for frame in self._frames_in_loop()):
      return None
    return seconds, max(took)

  def after_create_session(self, session, coord):
    self._loop, self._run_began = threading.get_ident(), None
    if self._after and self._thread is None:
      self._thread = threading.Thread(target=self._watch, daemon=True, name="tf1ps: stalls")
      self._thread.start()

  def finish_steps(self, session):
    self._stopped.set()  # the waits of the end have limits of their own

  def _watch(self):
    before, moved, due, looked, said = None, 0.0, 0.0, time.monotonic(), False
    while not self._stopped.wait(self._every):
      now, progress = time.monotonic(), (self.lifecycle.sessions, self._counts.progress)
      was_paused, looked = now - looked > self._after / 2, now
      if progress != before or was_paused or self.lifecycle.signum is not None:
        if said and progress != before:
          _log.warning("the stall is over: this worker makes steps again")
          self._run.heartbeat.set(blocked="")
          said = False
        before, moved, due = progress, now, now + self._after
      elif now >= due:
        due = now + self._after
        wait = self._find_wait()
        if not wait.counts:
          moved = now
        elif not said:
          self._say(now - moved, wait)
          said = True
        elif self._fails and not wait.is_for_others and not self._stopped.is_set():
          self._give_up(now - moved, wait)
          return

  def _say(self, seconds, wait):
    self._run.heartbeat.set(blocked=wait.text)
    if not wait.is_for_others:
      _log.warning("the threads of this process:\n%s", "\n".join(_stacks()))
    _log.warning("stalled: %s has made no step for %.0f s: it waits for %s",
                 self._run.cluster.task.name, seconds, wait.text)

  def _give_up(self, seconds, wait):
    """Ends the worker; if the loop does not end within the limit, the process exits by force."""
    text = "no step for %.0f s (--stall_after with :fail): it waits for %s" % (
      seconds, wait.text)
    session = self.lifecycle.session
    if session is not None:
      session.abort(lambda: StalledError(text))
    if self._has_ended.wait(TIMING.force_exit_limit):
      return
    if self._loop == threading.main_thread().ident:  # else other code shares the process
      self._run.report(MEMBER_FAILED, text, limit=TIMING.report_limit_after_failure)
      leave_now(EXIT_FAILED, "%s: StalledError: %s, exit code %d" % (
        self._run.cluster.task.name, text, EXIT_FAILED))

  def _find_wait(self) -> Wait:
    frames = self._frames_in_loop()
    places = [_PLACES[_module(frame)] for frame in frames if _module(frame) in _PLACES]
    if places:
      return places[0]
    for frame in frames:
      if _module(frame) == _RUN:
        return self._find_wait_of_run()
      if _is_of_program(frame):
        return Wait("Python code of the program, %s" % _say_place(frame))
    return Wait("Python code, %s" % _say_place(frames[0]) if frames else "an unknown thing")

  def _frames_in_loop(self) -> list:
    return list(itertools.takewhile(lambda frame: _module(frame) != _LOOP, _frames(self._loop)))

  def _find_wait_of_run(self) -> Wait:
    round_, awaited = self._look_at_round()
    if awaited:
      return Wait("the gradient of %s in round %d" % (" and ".join(awaited), round_), True)
    waits = ["Python code of the program in another thread, %s" % _say_place(frame)
             for frame in self._program_frames()]
    waits += ["the queue %s with %d elements" % pair for pair in self._sizes()]
    return Wait("; ".join([self._say_run(), *waits]))

  def _look_at_round(self) -> Tuple[int, List[str]]:
    """The round, and the workers that it waits for if this worker's gradient is in it."""
    for hook in self._sync:
      number, awaited = hook.awaited()
      blocked = {member.name: member.blocked for member in self._run.heartbeat.members()}
      return number, [name + (" (it waits for %s)" % blocked[name] if blocked.get(name) else "")
                      for name in awaited]
    return 0, []

  def _say_run(self) -> str:
    own = self._run.cluster.task.name
    tasks = [task for task in self._run.state_tasks if task.name != own]
    if not tasks:
      return "a run of its session"
    return "a run of its session on %s" % ", ".join(
      "%s (%s)" % (probe.task.name, "answers" if probe.is_up else probe)
      for probe in probe_tasks(tasks, timeout=TIMING.watch_probe_limit))

  def _program_frames(self) -> list:
    """The innermost frame of the program's code in each thread, except the loop's."""
    stacks = [_frames(ident) for ident in list(sys._current_frames()) if ident != self._loop]
    return [frame for stack in stacks for frame in list(filter(_is_of_program, stack))[:1]]

  def _sizes(self) -> List[tuple]:
    session = self.lifecycle.session
    if not self._queues or not isinstance(session, BoundedSession):
      return []
    try:
      sizes = call_within(TIMING.lock_limit, "the sizes of the queues", session.run,
                          [size for _, size in self._queues])
    except (tf.errors.OpError, RuntimeError):
      return []
    return [(name, size) for (name, _), size in zip(self._queues, sizes)]


def _frames(ident) -> list:
  """The innermost frame comes first."""
  frame, frames = sys._current_frames().get(ident), []
  while frame is not None:
    frames.append(frame)
    frame = frame.f_back
  return frames


def _module(frame) -> str:
  return frame.f_globals.get("__name__", "")


def _is_of_program(frame) -> bool:
  """Whether a frame is neither of Python, nor of an installed package, nor of tf1ps."""
  path = frame.f_code.co_filename
  return os.path.isabs(path) and not path.startswith(_TF1PS) and not is_installed_file(path)


def _say_place(frame) -> str:
  return "%s:%d in %s" % (
    os.path.basename(frame.f_code.co_filename), frame.f_lineno, frame.f_code.co_name)


def _stacks() -> List[str]:
  names = {thread.ident: thread.name for thread in threading.enumerate()}
  lines = []
  for ident, frame in sorted(sys._current_frames().items()):
    if ident != threading.get_ident():
      lines.append("thread %s:" % names.get(ident, "of TensorFlow"))
      lines += "".join(traceback.format_stack(frame)).rstrip().splitlines()
  return lines
