from __future__ import annotations

import logging

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_job
from tf1ps.training import auto_steps
from tf1ps.training.options import Options
from tf1ps.transfer import run_length, unrolling


class Fetches:
  """Fetches of a step of so many operations; it notes the copies that are asked for."""

  def __init__(self, ops=100, refuses=False, may_gain_in_long_runs=False):
    self.steps = self.most = 1
    self.graph, self._ops, self._refuses, self.asked = tf.Graph(), ops, refuses, []
    self.graph.finalize()
    self.may_gain_in_long_runs = lambda: may_gain_in_long_runs

  def count_ops(self):
    return self._ops

  def grow(self, most):
    assert not self.graph.finalized and tf.get_default_graph() is self.graph
    if most not in self.asked:  # the copies are made once
      self.asked.append(most)
    if self._refuses:
      raise ValueError("the batch is fed")
    self.most = most


@pytest.fixture
def clock(monkeypatch):
  """The time by which the hook measures; advance it by adding to clock[0]."""
  now = [100.0]
  monkeypatch.setattr(auto_steps.time, "perf_counter", lambda: now[0])
  return now


def run(hook, fetches, clock, seconds, until=3000):
  """Has the loop make runs that take seconds(steps of the run); stops when the hook has ended."""
  hook.after_create_session(None, None)
  for _ in range(until):
    if hook.has_ended:
      return
    fetches.steps = fetches.most
    clock[0] += seconds(fetches.most)
    hook.after_run(None, None)


@pytest.mark.parametrize("step, most", [(0.001, 16), (0.004, 16), (0.007, 8), (0.016, 4),
                                        (0.03, 2), (0.05, 1)])
def test_the_faster_the_step_the_more_steps_in_a_run(clock, step, most):
  fetches = Fetches()
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  run(hook, fetches, clock, lambda steps: step * (steps + 1) / 2)  # copies take half of the time
  assert fetches.most == most and fetches.asked == [most][:most - 1]
  assert fetches.graph.finalized and hook.has_ended == (most > 1)


@pytest.mark.parametrize("step, most", [(0.001, 16), (0.1, 8), (0.15, 4), (0.6, 1)])
def test_large_values_and_embeddings_allow_longer_runs(clock, step, most):
  fetches = Fetches(may_gain_in_long_runs=True)
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  run(hook, fetches, clock, lambda steps: step * (steps + 1) / 2)
  assert fetches.most == most and fetches.asked == [most][:most - 1]


def test_a_short_job_does_not_try_long_runs(clock):
  fetches = Fetches(ops=1000, may_gain_in_long_runs=True)
  run(auto_steps.AutoSteps(fetches, lambda: 100), fetches, clock, lambda steps: 0.1 * steps)
  assert not fetches.asked


@pytest.mark.parametrize("ratio, most", [(0.9, 16), (0.98, 1), (1.5, 1)])
def test_runs_of_several_steps_stay_only_if_they_are_faster(clock, caplog, ratio, most):
  fetches = Fetches()
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  with caplog.at_level(logging.INFO, "tf1ps"):
    run(hook, fetches, clock, lambda steps: 0.002 * steps * (1 if steps == 1 else ratio))
  assert fetches.asked == [16] and fetches.most == most and hook.has_ended
  line, = [record.getMessage() for record in caplog.records]
  assert line == (
    "%s per run from here on: %.2f ms per step in runs of 16 steps, 2.00 ms in runs of 1 "
    "(--steps_per_execution)" % ("16 steps" if most > 1 else "1 step", 2.0 * ratio))


@pytest.mark.parametrize("loads, most", [
  # Windows of single and of longer runs in turns, and how much slower the machine is in each.
  ([1, 1.3], 16), ([2, 1], 16), ([1, 1.3, 1.3, 1], 16), ([1, 1.3, 1, 1.3], 1),
  ([1, 1.3, 2, 2, 2, 2], 16)])
def test_other_work_of_the_machine_during_a_comparison_does_not_decide(clock, loads, most):
  """A step of a longer run takes 0.9 of a single step."""
  fetches = Fetches()
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  windows, before = [], [None]

  def seconds(steps):
    if steps != before[0]:
      windows.append(steps)
      before[0] = steps
    at = len(windows) - 1
    return 0.002 * steps * (1 if steps == 1 else 0.9) * (loads[at] if at < len(loads) else 1)

  run(hook, fetches, clock, seconds)
  assert hook.has_ended and fetches.most == most
  assert windows == ([1, 16] if loads[0] == 2 else [1, 16] * 3)


@pytest.mark.parametrize("ops, left, asked", [
  (1000, 2000, []), (1000, 10000, [2]), (1000, 20000, [4]), (1000, 10**6, [8]),
  (50, 1000, []), (50, 5000, [8]), (50, 10**6, [16]), (20000, 10**6, [])])
def test_copies_are_made_if_they_save_twice_what_they_cost(clock, ops, left, asked):
  fetches = Fetches(ops)
  hook = auto_steps.AutoSteps(fetches, lambda: left)
  run(hook, fetches, clock, lambda steps: 0.001 * steps)
  assert fetches.asked == asked


def test_a_job_without_a_known_end_is_taken_to_last_as_long_again(clock):
  fetches, begin = Fetches(ops=100), clock[0]
  hook = auto_steps.AutoSteps(fetches, lambda: None)
  run(hook, fetches, clock, lambda steps: 0.001 * steps, until=9000)
  assert len(fetches.asked) == 1 and 2.0 < clock[0] - begin < 10.0


def test_a_step_that_cannot_be_copied_stays_alone(clock):
  fetches = Fetches(refuses=True)
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  run(hook, fetches, clock, lambda steps: 0.001)
  assert hook.has_ended and fetches.most == 1 and fetches.graph.finalized


def test_single_steps_after_the_copies_do_not_count(clock):
  """Such as those before the first run of several steps, and those near a stop."""
  fetches = Fetches()
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  while not fetches.asked:
    clock[0] += 0.002
    hook.after_run(None, None)
  for _ in range(2000):
    clock[0] += 0.002
    hook.after_run(None, None)
  assert not hook.has_ended
  run(hook, fetches, clock, lambda steps: 0.001 * steps)
  assert hook.has_ended and fetches.most == 16


def test_a_new_session_begins_to_measure_anew(clock):
  fetches = Fetches()
  hook = auto_steps.AutoSteps(fetches, lambda: 10**6)
  for _ in range(3):
    run(hook, fetches, clock, lambda steps: 0.001, until=900)  # below a second
  assert not fetches.asked
  run(hook, fetches, clock, lambda steps: 0.001 * steps)
  assert fetches.asked == [16]


@pytest.mark.parametrize("options, finds", [
  ({}, True), (dict(steps_per_execution=1), False), (dict(steps_per_execution=4), False),
  (dict(sync_replicas=True), False), (dict(overlap="prefetch"), False),
  (dict(overlap=2), False), (dict(staleness_policy="max_lead:2"), False),
  (dict(replication="in_graph"), False), (dict(staleness_policy="drop:2"), True)])
def test_only_a_loop_that_may_have_several_steps_looks_for_their_number(options, finds):
  assert Options(steps=1, **options).finds_run_steps is finds


@pytest.fixture
def grows(monkeypatch):
  """Has a loop grow after a few steps, return twice and grow again, whatever they take."""
  for name, value in (("_SKIPPED", 1), ("_STEPS", 1), ("_RUNS", 1),
                      ("_SECONDS", 0.0), ("_CLEAR_GAIN", 0.0), ("_GAIN", 1e9), ("_RUN", 1e9),
                      ("_PER_RUN", 1e9), ("_MOST_COST", 1e9)):
    monkeypatch.setattr(run_length, name, value)


@pytest.mark.parametrize("early_bytes", [1 << 19, 0])
def test_a_job_grows_and_makes_the_same_steps(grows, caplog, monkeypatch, early_bytes):
  """The values are those of single steps, and the job ends at the very step."""
  monkeypatch.setattr(unrolling, "_EARLY_BYTES", early_bytes)
  found = {}
  for steps in (1, "auto"):
    with caplog.at_level(logging.INFO, "tf1ps"):
      found[steps] = local_job.train(
        batch_size=4, steps=203, learning_rate=0.1, steps_per_execution=steps)
  assert "16 steps per run from here on: " in caplog.text
  for outcome in found.values():
    assert (outcome.steps, outcome.examples, outcome.global_step) == (203, 812, 203)
  assert found[1].evaluation.metrics == found["auto"].evaluation.metrics


def test_the_hooks_of_a_program_see_each_step(grows):
  seen = []

  class Own(tf.train.SessionRunHook):
    def after_run(self, run_context, run_values):
      seen.append(1)

  def model(features, labels, mode):
    return local_job.line_model(features, labels, mode)._replace(
      hooks=[Own()] if mode == "train" else ())

  local_job.train(model_fn=model, batch_size=4, steps=60)
  assert len(seen) == 60


@pytest.mark.slow
def test_the_end_of_the_data_after_growing_counts_each_example(grows):
  outcome = local_job.train(batch_size=4, epochs=2)
  assert (outcome.steps, outcome.examples) == (200, 800)
