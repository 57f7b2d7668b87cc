from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps.checkpoint import global_step
from tf1ps.training import options, remainder, stops
from tf1ps.training.counts import ExampleCounter


@pytest.fixture(autouse=True)
def graph(set_timing):
  set_timing(global_step, global_step_interval=1e9)  # questions come by steps alone
  with tf.Graph().as_default() as graph:
    yield graph


def stop_at(last_step, num_workers=1):
  """Trains until StopAtStep stops; returns (own steps, questions, the global step, the hook)."""
  counts = local_loop.counts()
  hook = stops.StopAtStep(counts, last_step, num_workers)
  steps, questions = local_loop.run([counts.tracker, hook], last_step + 10)
  return steps, questions, counts.tracker.value, hook


@pytest.mark.parametrize("last_step", [1, 2, 5, 100, 1003])
def test_one_worker_ends_at_the_very_step(last_step):
  local_loop.Model()
  steps, questions, value, hook = stop_at(last_step)
  assert (steps, value, hook.is_reached) == (last_step, last_step, True)
  assert questions <= 30


@pytest.mark.parametrize("num_workers, last_step", [(3, 1000), (3, 7), (50, 10000)])
def test_several_workers_go_over_it_by_less_than_their_number(num_workers, last_step):
  local_loop.Model(steps_by=num_workers)
  steps, questions, value, _ = stop_at(last_step, num_workers)
  assert 0 <= value - last_step < num_workers
  assert steps == -(-last_step // num_workers)
  assert questions <= 30


def test_a_worker_that_others_overtake_looks_as_often_as_they_step():
  # Told of one worker, it learns from the rate that there are more.
  local_loop.Model(steps_by=40)
  steps, _, value, _ = stop_at(10000, num_workers=1)
  assert (steps, value) == (250, 10000)


def test_a_job_that_has_ended_makes_no_further_step():
  model = local_loop.Model()
  counts = local_loop.counts()
  hook = stops.StopAtStep(counts, 7)
  assert local_loop.run([StartAt(model.global_step, 7), counts.tracker, hook], 3)[0] == 0
  assert hook.is_reached


class StartAt(tf.train.SessionRunHook):
  """Puts the global step somewhere before the others see the session."""

  def __init__(self, variable, value):
    self._variable = variable
    self._value = value

  def begin(self):
    self._assign = self._variable.assign(self._value).op

  def after_create_session(self, session, coord):
    session.run(self._assign)


def test_a_last_step_below_one_is_refused():
  with pytest.raises(ValueError, match="last_step must be at least 1, got 0"):
    stops.StopAtStep(local_loop.counts(), 0)


@pytest.mark.parametrize("batch, num_examples, steps", [(10, 30, 3), (10, 31, 4), (32, 1, 1)])
def test_examples_end_with_the_batch_that_reaches_them(batch, num_examples, steps):
  local_loop.Model()
  counts = local_loop.counts(batch)
  hook = stops.StopAtExamples(counts, num_examples)
  assert local_loop.run([ExampleCounter(counts), hook], 99)[0] == steps
  assert counts.examples == steps * batch


def test_no_examples_are_refused():
  with pytest.raises(ValueError, match="num_examples must be at least 1, got 0"):
    stops.StopAtExamples(local_loop.counts(), 0)


@pytest.mark.parametrize("total, count, parts", [
  (10, 3, [4, 3, 3]), (9, 3, [3, 3, 3]), (2, 3, [1, 1, 0]), (7, 1, [7])])
def test_the_parts_of_all_workers_add_up(total, count, parts):
  assert [stops.part_of(total, index, count) for index in range(count)] == parts
  assert sum(parts) == total


def test_examples_before_are_no_part_of_any_worker():
  counts = local_loop.counts(4)
  counts.examples_before = 9
  hooks = [stops.StopAtExamples(counts, 20, index, 2) for index in (0, 1)]  # 6 and 5
  assert [hook.is_reached_by(5) for hook in hooks] == [False, True]
  assert not hooks[0].nothing_left


@pytest.mark.parametrize("replication", ["between_graph", "all_reduce"])
def test_without_examples_left_no_step_is_made(replication):
  local_loop.Model()
  counts = local_loop.counts(4)
  counts.examples_before = 20
  made = stops.Stops(options.Options(examples=20, replication=replication), counts, 0, 2)
  assert local_loop.run([ExampleCounter(counts), *made.hooks], 9)[0] == 0
  assert made.reason() == (
    "nothing was left to do: the job had trained on 20 examples before (--examples=20)")


def make(index=0, count=1, examples_done=0, step=0, was_ended=False, left=None, **flags):
  counts = local_loop.counts(4)
  counts.tracker.value = step
  counts.add_examples(examples_done)
  counts.was_ended, counts.left = was_ended, left
  return stops.Stops(options.Options(**flags), counts, index, count)


@pytest.mark.parametrize("flags, done, reason", [
  (dict(steps=10), dict(step=10), "reached --steps=10"),
  (dict(steps=10, examples=8), dict(step=3, examples_done=8),
   "trained on its part of --examples=8"),
  (dict(steps=10, epochs=2), dict(step=3), "went through its data --epochs=2 times"),
  (dict(steps=10), dict(step=3), "its data ended")])
def test_the_reason_is_what_was_reached(flags, done, reason):
  made = make(**flags, **done)
  assert made.reason() == reason
  assert made.is_reached == (not reason.endswith(("times", "ended")))


@pytest.mark.parametrize("flags, step, examples, expected", [
  (dict(steps=10), 3, 24, "the training data ended after 3 of --steps=10. Let input_fn repeat them "
   "in mode 'train' (dataset.repeat()), or give fewer steps"),
  (dict(steps=10, examples=8), 3, 6, "the training data ended after 3 of --steps=10. Let input_fn "
   "repeat them in mode 'train' (dataset.repeat()), or give fewer steps"),
  (dict(examples=8), 3, 6, "the training data ended after 6 of --examples=8. Let input_fn repeat "
   "them in mode 'train' (dataset.repeat()), or give fewer examples"),
  (dict(steps=10), 10, 80, ""),  # other workers made the steps
  (dict(examples=8), 3, 8, ""),
  (dict(steps=10, epochs=1), 3, 24, "")])  # the user limits the data
def test_data_that_end_before_the_goal_are_a_warning(flags, step, examples, expected):
  assert make(**flags).say_short(step, examples) == expected


def test_other_ends_before_the_goal_are_no_warning():
  reached = make(steps=5, step=5)
  reached.end_loop()
  assert reached.say_short(3, 24) == ""  # a ps was lost at the end
  asked = make(steps=5)
  asked.early.reason = "early stopping"
  assert asked.say_short(3, 24) == ""


def test_a_job_that_goes_back_when_the_loop_has_ended_says_so():
  made = make(steps=5, step=5)
  made.end_loop()
  assert (made.was_reached, made.has_gone_back) == (True, False)
  made._counts.tracker.value = 3  # a ps was lost, and the chief restored the checkpoint of step 3
  assert (made.was_reached, made.is_reached, made.has_gone_back) == (True, False, True)
  assert made.reason() == "reached --steps=5, and went back to step 3 when the loop had ended"
  made._counts.tracker.value = 5  # another worker has made the steps again
  assert not made.has_gone_back and made.reason() == "reached --steps=5"


def test_the_reason_has_another_workers_end_and_the_remaining_data():
  def reason(all_went_through=False, **flags):
    return make(epochs=1, sync_replicas=True, was_ended=True, **flags).reason(
      all_went_through=all_went_through)

  assert reason() == "another worker's data ended (--on_uneven=stop_all)"
  assert reason(left=remainder.Left(4, 20, True)) == (
    "another worker's data ended (--on_uneven=stop_all); 4 of its examples were drawn without "
    "an update, 20 were left")
  assert reason(on_uneven="shrink") == "training had already ended for all workers"
  assert reason(on_uneven="repeat") == "another worker ended training for all (--on_uneven=repeat)"
  assert reason(on_uneven="repeat", all_went_through=True) == (
    "all workers went through their data (--on_uneven=repeat)")


@pytest.mark.parametrize("index, replication, is_last", [
  (0, "between_graph", [False, True]), (1, "between_graph", [True, True]),
  (1, "in_graph", [False, False])])
def test_examples_are_divided_unless_the_chief_counts_for_all(index, replication, is_last):
  made = make(index, 2, 4, examples=15, replication=replication)  # 8 and 7
  assert [made.is_last(3), made.is_last(4)] == is_last


def test_all_reduce_ends_its_examples_by_vote():
  def kinds(**flags):
    return [type(hook) for hook in make(examples=9, steps=9, **flags).hooks]

  assert kinds() == [stops.StopAtStep, stops.StopAtExamples, stops.EarlyStop]
  assert kinds(replication="all_reduce") == [stops.StopAtStep, stops.NoExamplesLeft]


def test_a_step_that_is_known_to_be_the_last():
  made = make(steps=10, step=3)
  assert [made.is_reached_at(9), made.is_reached_at(10)] == [False, True]
  assert not make(epochs=1).is_reached_at(10**9)


def test_fewer_examples_than_workers_are_refused():
  with pytest.raises(ValueError, match="--examples=2, but each of the 3 workers needs an "):
    make(0, 3, examples=2)
