from __future__ import annotations

import pytest

from tests.training import local_loop
from tf1ps.checkpoint.global_step import GlobalStepTracker
from tf1ps.training import options, progress, remainder, stops


def make(index=0, count=1, examples_done=0, step=0, **flags):
  tracker, counter = GlobalStepTracker(), progress.ExampleCounter(local_loop.fetches(4))
  tracker.value = step
  counter.add(examples_done)
  return stops.Stops(options.Options(**flags), tracker, counter, index, count)


@pytest.mark.parametrize("flags, done, reason", [
  (dict(steps=10), dict(step=10), "reached --steps=10"),
  (dict(steps=10, examples=8), dict(step=3, examples_done=8),
   "trained on its part of --examples=8"),
  (dict(steps=10, epochs=2), dict(step=3), "went through its data --epochs=2 times"),
  (dict(steps=10), dict(step=3), "its data ended")])
def test_the_reason_is_what_was_reached(flags, done, reason):
  made = make(**flags, **done)
  assert made.reason(False) == reason
  assert made.is_reached == (not reason.endswith(("times", "ended")))


def test_another_workers_end_is_told_with_what_was_left():
  made = make(epochs=1, sync_replicas=True)
  left = remainder.Left(4, 20, True)
  assert made.reason(True) == "another worker's data ended (--on_uneven=stop_all)"
  assert made.reason(True, left) == (
    "another worker's data ended (--on_uneven=stop_all); of its own, 4 examples were drawn for no "
    "update and 20 left")
  assert make(epochs=1, sync_replicas=True, on_uneven="shrink").reason(True) == (
    "training had been ended for all without this worker")


@pytest.mark.parametrize("index, replication, is_last", [
  (0, "between_graph", [False, True]), (1, "between_graph", [True, True]),
  (1, "in_graph", [False, False])])
def test_examples_are_divided_unless_the_chief_counts_for_all(index, replication, is_last):
  made = make(index, 2, 4, examples=15, replication=replication)  # 8 and 7
  assert [made.is_last(3), made.is_last(4)] == is_last


def test_all_reduce_ends_its_examples_by_vote():
  assert len(make(examples=9, steps=9).hooks) == 2
  assert len(make(examples=9, steps=9, replication="all_reduce").hooks) == 1


def test_a_step_that_is_known_to_be_the_last():
  made = make(steps=10, step=3)
  assert [made.is_reached_at(9), made.is_reached_at(10)] == [False, True]
  assert not make(epochs=1).is_reached_at(10**9)


def test_fewer_examples_than_workers_are_refused():
  with pytest.raises(ValueError, match="--examples=2 is less than one for each of the 3 workers"):
    make(0, 3, examples=2)
