from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.training import local_loop
from tf1ps.checkpoint import global_step


class Do(tf.train.SessionRunHook):
  """Calls a function after each run, with the steps so far."""

  def __init__(self, function):
    self._function = function
    self._steps = 0

  def after_run(self, run_context, run_values):
    self._steps += 1
    self._function(self._steps)


@pytest.fixture
def graph():
  with tf.Graph().as_default() as graph:
    yield graph


@pytest.fixture
def no_clock(set_timing):
  """Questions come by steps alone, however slow the machine is."""
  set_timing(global_step, global_step_interval=1e9)


def test_asks_at_the_start_and_every_hundred_steps(graph, no_clock):
  local_loop.Model()
  tracker, answers = global_step.GlobalStepTracker(), []
  tracker.add_listener(lambda step, own: answers.append((step, own)))
  assert local_loop.run([tracker], 250) == (250, 3)
  assert answers == [(0, 0), (100, 100), (200, 200)]  # each includes the step before it
  assert (tracker.value, tracker.own_steps) == (200, 250)


def test_asks_when_the_time_is_over(graph, set_timing):
  local_loop.Model()
  set_timing(global_step, global_step_interval=0.0)
  assert local_loop.run([global_step.GlobalStepTracker()], 7) == (7, 8)


def test_asks_sooner_for_who_has_to_know(graph, no_clock):
  local_loop.Model()
  tracker, asked = global_step.GlobalStepTracker(), []

  def each(step):
    if tracker.asked:
      asked.append(step)
    if step == 3:
      tracker.ask_within(20)
    if step == 4:
      tracker.ask_within(5)  # counts from the last answer, at the start; the smaller one wins
    if step == 5:
      tracker.ask_within(0)  # within one step

  assert local_loop.run([tracker, Do(each)], 110) == (110, 4)
  # Step 5 answers both; what was asked for before an answer is forgotten with it.
  assert asked == [5, 6, 106]


def test_asked_is_true_only_after_a_question(graph, no_clock):
  local_loop.Model()
  tracker, asked = global_step.GlobalStepTracker(), []
  tracker.ask_within(2)
  local_loop.run([tracker, Do(lambda step: asked.append(tracker.asked))], 3)
  assert asked == [False] * 3  # the question at the start has answered the wish
  tracker, asked = global_step.GlobalStepTracker(), []

  def each(step):
    asked.append(tracker.asked)
    tracker.ask_within(2)

  local_loop.run([tracker, Do(each)], 4)
  assert asked == [False, True, False, True]


@pytest.mark.parametrize("steps_by, rate", [(1, 1.0), (3, 3.0), (0, 1.0)])
def test_the_rate_is_global_steps_for_each_own(graph, no_clock, steps_by, rate):
  local_loop.Model(steps_by=steps_by)
  tracker = global_step.GlobalStepTracker()
  local_loop.run([tracker], 100)
  assert tracker.rate == rate


def test_own_steps_and_rate_go_on_over_a_recovery(graph, no_clock):
  local_loop.Model(steps_by=3)
  tracker, answers, fail_at = global_step.GlobalStepTracker(), [], [3]
  tracker.add_listener(lambda step, own: answers.append((step, own)))

  def each(step):
    if step == 1:
      tracker.ask_within(2)
    if step in fail_at:
      raise tf.errors.AbortedError(None, None, "once")

  assert local_loop.run([tracker, Do(each)], 5)[0] == 5
  # The step that was lost for the caller counts: it was made. The state went back to 0.
  assert answers == [(0, 0), (6, 2), (0, 3)]
  assert (tracker.own_steps, tracker.rate) == (6, 3.0)


def test_without_a_global_step_the_value_stays_0(graph, set_timing):
  set_timing(global_step, global_step_interval=0.0)
  count = tf.get_variable("x", [], initializer=tf.zeros_initializer()).assign_add(1.0)
  tf.add_to_collection(tf.GraphKeys.TRAIN_OP, count)
  tracker = global_step.GlobalStepTracker()
  assert local_loop.run([tracker], 3)[0] == 3
  assert (tracker.value, tracker.own_steps) == (0, 3)
  with pytest.raises(RuntimeError, match="a checkpoint needs a global step: call tf.train.get_or_"):
    tracker.check_step("a checkpoint")


def test_finds_a_step_of_any_type(graph):
  assert global_step.find_global_step() is None
  tensor = tf.constant(3.0, name="global_step")
  assert global_step.find_global_step() is tensor
  for use_resource in (False, True):
    with tf.Graph().as_default() as other:
      variable = tf.get_variable("global_step", [], use_resource=use_resource)
      assert global_step.find_global_step() is variable
      named = tf.Variable(0, name="steps")
      tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, named)
      assert global_step.find_global_step(other) is named
