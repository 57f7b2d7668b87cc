from __future__ import annotations

import signal
import sys
import time

import pytest

from benchmarks import comparisons, interleaving, jobs, links, rows
from benchmarks.systems import System


class Bursts(jobs.Job):
  """Counts 48 steps at once, every 0.3 s; nothing while it is stopped."""

  def __init__(self):
    self._paused = 0.0
    self._began = self._stopped_at = time.monotonic()
    self._already = 0.0

  def go_on(self):
    self._paused += time.monotonic() - self._stopped_at
    self._stopped_at = None

  def stop(self):
    self._stopped_at = time.monotonic()

  def check(self):
    pass

  def steps(self):
    ran = time.monotonic() - self._began - self._paused
    bursts = int(ran / 0.3)
    return 48 * bursts, self._at(bursts)

  def sample(self):
    steps, at = self.steps()
    return jobs.Sample(steps, at, {"worker": 0.0, "ps": 0.0}, 0, time.monotonic())

  def begin(self, already):
    """It has run for so many seconds, and stands since a second ago."""
    now = time.monotonic()
    self._began, self._stopped_at = now - 1.0 - already, now - 1.0
    self._already = already

  def _at(self, bursts):
    ran = 0.3 * bursts  # when that much had been run
    return self._began + ran + (self._paused if ran > self._already else 0.0)


@pytest.fixture
def clock(monkeypatch):
  """A clock on which time passes for who sleeps alone, on any machine."""
  clock = Clock()
  for module in (sys.modules[__name__], interleaving, jobs):
    monkeypatch.setattr(module, "time", clock)
  clock.sleep(100.0)
  return clock


@pytest.mark.parametrize("already", [0.31, 0.45, 0.59])
def test_a_window_holds_whole_bursts_of_its_own_turn(clock, already):
  job = Bursts()
  job.begin(already)
  window = interleaving.measure(job, interleaving.Pace(1, 0.05, 0.0))
  assert window.steps_per_second == pytest.approx(160.0, rel=0.01)


class ReadBursts(Bursts):
  """Its steps are read with the time of the reading, as those of tf1ps are."""

  def steps(self):
    return super().steps()[0], time.monotonic()


def test_a_window_of_steps_that_are_read_misses_none_that_are_half_made(clock):
  job = ReadBursts()
  job.begin(0.45)
  window = interleaving.measure(job, interleaving.Pace(1, 0.4, 0.0))
  assert window.steps_per_second == pytest.approx(160.0, rel=0.04)  # it is read every 0.01 s


def test_each_round_begins_with_another_one():
  assert [interleaving.turns("abc", number) for number in range(4)] == [
    ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
  assert interleaving.turns([], 3) == []


class Clock:
  """Stands in for the module `time`: whoever sleeps lets the time pass."""

  def __init__(self):
    self.now = 0.0

  def monotonic(self):
    return self.now

  def sleep(self, seconds):
    self.now += seconds


class Simulated(jobs.Job):
  """Ten steps a second after a start of 12 s; is cut off when it stands for a minute, as by gRPC.

  One whose name begins with "broken at N" ends at that step.
  """

  clock: Clock

  def __init__(self, system, run, reader=None):
    self.system = system
    self._stopped_at = self._error_text = None
    self._ran, self._going_since = -12.0, self.clock.now
    self.ended = False

  def signal(self, number):
    if number == signal.SIGSTOP and self._going_since is not None:
      self._ran += self.clock.now - self._going_since
      self._going_since, self._stood_since = None, self.clock.now
    elif number == signal.SIGCONT:
      self._going_since = self.clock.now
      if self.clock.now - self._stood_since > 60:
        self._error_text = "worker 0 ended with 1: ping timeout"

  def steps(self):
    ran = self._ran
    if self._going_since is not None:
      ran += self.clock.now - self._going_since
    return max(0, int(ran * 10)), self.clock.now

  def check(self):
    if self.system.name.startswith("broken at ") and self.steps()[0] >= int(
        self.system.name.split()[-1]):
      self._error_text = "worker 0 ended with 1: ValueError: no"
    if self._error_text:
      raise jobs.JobError(self.system.name + ": " + self._error_text + "\n--- worker 0: all of it")

  def sample(self):
    self.check()
    steps, at = self.steps()
    return jobs.Sample(steps, at, {"worker": 0.0, "ps": 0.0}, 0, at)

  def peak_mb(self, kinds=()):
    return 1.0

  def end(self):
    self.ended = True


@pytest.fixture
def simulated(monkeypatch):
  """Has jobs simulated; returns those that were started."""
  made, clock = [], Clock()

  class Noted(Simulated):
    def __init__(self, *args):
      super().__init__(*args)
      made.append(self)

  Noted.clock = clock
  for module in (jobs, interleaving):
    monkeypatch.setattr(module, "time", clock)
  monkeypatch.setattr(jobs, "Job", Noted)
  monkeypatch.setattr(interleaving, "left_out", [])
  return made


def lines_of(*names):
  return [System(name, "local") for name in names]


@pytest.mark.parametrize("pace", [
  interleaving.Pace(3), interleaving.Pace(2, 0.9 * interleaving.LONGEST_TURN, 1.0)])
def test_no_system_stands_for_as_long_as_its_connections_bear(simulated, pace):
  names = ["system %d" % number for number in range(14)]
  measured, lost = interleaving.compare("S", links.LOOPBACK, lines_of(*names), pace)
  assert lost == {}
  assert [len(measured[name].windows) for name in names] == [pace.rounds] * 14
  assert all(window.steps_per_second == pytest.approx(10, rel=0.05)
             for one in measured.values() for window in one.windows)
  assert all(job.ended for job in simulated)


def test_a_system_that_stops_working_is_lost_and_the_others_go_on(simulated):
  lines = lines_of("first", "broken at 5", "broken at 60", "last")
  measured, lost = interleaving.compare("S", links.LOOPBACK, lines, interleaving.Pace(3))
  assert {name: len(one.windows) for name, one in measured.items()} == {"first": 3, "last": 3}
  assert lost == {name: name + ": worker 0 ended with 1: ValueError: no"
                  for name in ("broken at 5", "broken at 60")}
  assert all(job.ended for job in simulated) and len(simulated) == 4


def test_a_lost_base_costs_the_ratios_and_no_other_row(simulated):
  lines = lines_of("first", "broken at 60", "last")
  pace = interleaving.Pace(3)
  kept = comparisons.run(comparisons.Comparison("S", lines, base="first"), pace, 0, 1)
  assert [(one["system"], one["ratio_to_classic"]) for one in kept] == [
    ("first", 1.0), ("broken at 60", None), ("last", pytest.approx(1.0, rel=0.05))]
  made = comparisons.run(comparisons.Comparison("S", lines, base="broken at 60"), pace, 0, 1)
  assert [one["ratio_to_classic"] for one in made] == [None] * 3
  assert made[0]["steps_per_second"] == kept[0]["steps_per_second"]
  assert rows.table(made).splitlines()[3].startswith("| S | loopback | broken at 60 (lost) |")
  assert rows.extras(made) == [
    '- S, broken at 60: lost "broken at 60: worker 0 ended with 1: ValueError: no; the others are '
    'compared with it, so there are no ratios"']
