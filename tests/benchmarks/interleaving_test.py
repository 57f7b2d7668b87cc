from __future__ import annotations

import time

import pytest

from benchmarks import interleaving, jobs


class Bursts(jobs.Job):
  """Counts 48 steps at once, every 0.3 s; nothing while it is stopped."""

  def __init__(self):
    self.stood = 0.0
    self._began = self._stopped_at = time.monotonic()
    self._already = 0.0

  def go_on(self):
    self.stood += time.monotonic() - self._stopped_at
    self._stopped_at = None

  def stop(self):
    self._stopped_at = time.monotonic()

  def check(self):
    pass

  def steps(self):
    ran = time.monotonic() - self._began - self.stood
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
    return self._began + ran + (self.stood if ran > self._already else 0.0)


@pytest.mark.parametrize("already", [0.31, 0.45, 0.59])
def test_a_window_holds_whole_bursts_of_its_own_turn(already):
  job = Bursts()
  job.begin(already)
  window = interleaving.measure(job, interleaving.Pace(1, 0.05, 0.0))
  assert window.steps_per_second == pytest.approx(160.0, rel=0.01)


def test_each_round_begins_with_another_one():
  assert [interleaving.turns("abc", number) for number in range(4)] == [
    ["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]
  assert interleaving.turns([], 3) == []
