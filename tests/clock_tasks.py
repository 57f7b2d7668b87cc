"""Processes whose clocks a test moves, so that nobody waits for a limit, and a busy machine has it.

`run` gives modules of the process a clock of their own, in the place of `time`: it shows the real
time until a signal of the test moves it.
"""
from __future__ import annotations

import contextlib
import importlib
import os
import signal
import time

from tests import harness, server_tasks
from tests.cluster_tasks import say
from tf1ps.cluster import probe_tasks
from tf1ps.state import ending

STEP = 601.0  # seconds that a move skips
LIMIT = STEP - 1.0  # one that a move exceeds, and no test does
_MOVED = b"I0000 a clock was moved\n"  # like a log's line, which is nobody's last word
_PATIENCE, _SILENCE = signal.SIGUSR1, signal.SIGUSR2
_MODULES = {_PATIENCE: ["tf1ps.cluster.path_check", "tf1ps.state.ending"],
            _SILENCE: ["tf1ps.state.control", "tf1ps.state.heartbeat"]}


class Clock:
  """Stands in for the module `time`."""

  def __init__(self):
    self._ahead, self._stands_at = 0.0, None

  def __getattr__(self, name):
    return getattr(time, name)

  def monotonic(self):
    return time.monotonic() + self._ahead if self._stands_at is None else self._stands_at

  def skip(self, stands=False):
    now = self.monotonic() + STEP
    self._ahead, self._stands_at = now - time.monotonic(), now if stands else None

  def go_on(self):
    self._ahead, self._stands_at = self._stands_at - time.monotonic(), None

  @property
  def stands(self):
    return self._stands_at is not None


def run(function, *args):
  """Runs function(*args) in a process whose clocks `end_patience` and `begin_silence` move."""
  patience, silence = Clock(), Clock()

  def on_signal(number, frame):
    if number == _PATIENCE:
      patience.skip()
    elif silence.stands:
      silence.go_on()
    else:
      silence.skip(stands=True)
    os.write(1, _MOVED)  # the signal may have interrupted a print

  for clock, number in ((patience, _PATIENCE), (silence, _SILENCE)):
    signal.signal(number, on_signal)
    for name in _MODULES[number]:
      importlib.import_module(name).time = clock
  return function(*args)


def moves(task):
  """How often the clocks of a process were moved."""
  return task.output.count(_MOVED.decode().strip())


def _move(task, number):
  before = moves(task)
  with contextlib.suppress(ProcessLookupError):  # it has ended
    task.signal(number)
  harness.wait_until(lambda: not task.is_running or moves(task) > before, what="the clock's move")


def end_patience(task):
  """Has a process believe that `STEP` seconds of its waits have passed."""
  _move(task, _PATIENCE)


def begin_silence(task):
  """Has a process believe that it has heard of nobody for `STEP` seconds; then its clock stands.

  While it stands, nobody becomes older.
  """
  _move(task, _SILENCE)


def end_silence(task):
  """Has the clock that `begin_silence` has moved go on."""
  _move(task, _SILENCE)


def end_of(task):
  """Ends the patience of a process until it has ended; returns its exit code.

  Not once: a connection that is being closed makes a wait begin anew.
  """
  harness.wait_until(lambda: end_patience(task) or not task.is_running, what="the end of a wait")
  return task.wait()


class _Watch(ending._JobWatch):
  """One that says what it sees, when that changes."""

  _said = None

  def look(self):
    line = super().look()
    seen = ["%s %s at %d%s" % (m.name, m.state, m.step, " lost" * self._beat.is_lost(m))
            for m in self._beat.members()]
    seen += ["a client"] * (self._counted_since is not None) + ["served"] * self._has_served
    if seen != self._said:
      self._said = seen
      say("sees:", ", ".join(seen) + ".")
    return line


def watch(function, *args):
  """Runs what joins a server of ours, which says what it sees; its clocks are moved as in `run`."""
  ending._JobWatch = _Watch
  # A busy worker has its time to answer.
  ending.probe_tasks = lambda tasks: probe_tasks(tasks, harness.LIMIT)
  return run(function, *args)


def join(*args):
  """Joins a server of ours, as in `watch`."""
  return watch(server_tasks.join, *args)


def wait_until_it_sees(task, *texts, without=()):
  """Waits until a process that joins sees all of these, and nothing of `without`."""
  def sees():
    seen = [line for line in task.output.splitlines() if line.startswith("sees: ")][-1:]
    return seen and all(text in seen[0] for text in texts) and not any(
      text in seen[0] for text in without)

  harness.wait_until(sees, what=lambda: "%s without %s in\n%s" % (texts, without, task.output))
