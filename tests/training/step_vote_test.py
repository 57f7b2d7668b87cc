from __future__ import annotations

import logging
import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import LifecycleHook, parsing
from tf1ps.state import control, heartbeat
from tf1ps.training import batch_ahead, step_vote
from tf1ps.training.step import Vote

CLUSTER = parsing.resolve_cluster(
  worker_hosts=harness.addresses(3), job_name="worker", task_index=0, needs_ps=False)


class Run(object):
  """Stands for a membership of a run: each beat is a round, which shows the others' steps."""

  def __init__(self, *rounds):
    self.cluster, self.is_over, self.heartbeat = CLUSTER, False, self
    self._rounds, self.beats = rounds, 0

  def beat(self):
    self.beats += 1
    if self._round == "silence":
      raise control.ControlError("no answer")

  def members(self):
    steps = {} if self._round == "silence" else self._round
    return [heartbeat.Member("worker", index, "worker", "host", 1, "run", state, step, 0, 0, "", 0)
            for index, (state, step) in steps.items()]

  @property
  def _round(self):
    return self._rounds[min(self.beats, len(self._rounds)) - 1]


class Lifecycle(object):
  """Stands for a session's lifecycle without a signal."""

  signum = None


def training(step):
  return heartbeat.MEMBER_TRAINING, step


def train(run=None, batches=2, votes=None, of_program=None):
  """Makes a worker's steps, alone or with this mean of votes; returns its hook and their number.

  `of_program` is a hook of the program, or None.
  """
  with tf.Graph().as_default():
    data = tf.data.Dataset.from_tensor_slices(np.zeros([4 * batches])).batch(4)
    ahead = batch_ahead.BatchAhead()
    x, _ = ahead.pass_through((tf.data.make_one_shot_iterator(data).get_next(), None))
    vote = tf.placeholder_with_default(tf.constant(1.0), [])
    mean = vote if votes is None else tf.minimum(vote, votes)
    hook = step_vote.StepVote(Vote(ahead, vote, mean), run)
    hook.on_join(Lifecycle())
    steps = 0
    hooks = [hook] if of_program is None else [hook, step_vote.VotingHook(of_program, hook)]
    with tf.train.MonitoredSession(hooks=hooks) as session:
      while not session.should_stop():
        session.run(x)
        steps += 1
  return hook, steps


@pytest.mark.parametrize("batches, votes, steps, was_ended, left", [
  (3, None, 3, False, None),
  (3, 0.5, 1, True, "4 examples were read and not trained on")])
def test_training_ends_with_the_step_in_which_anybody_is_against_another_one(
    batches, votes, steps, was_ended, left):
  hook, made = train(batches=batches, votes=votes)
  assert (made, hook.was_ended, hook.left) == (steps, was_ended, left)


def test_a_stop_that_the_programs_hook_requests_is_a_vote_against_another_step():
  class Second(tf.train.SessionRunHook):
    runs = 0

    def begin(self):
      self.three = tf.constant(3.0)

    def before_run(self, run_context):
      return tf.train.SessionRunArgs(self.three)

    def after_run(self, run_context, run_values):
      assert run_values.results == 3.0
      self.runs += 1
      if self.runs == 2:
        run_context.request_stop()

  hook, made = train(batches=9, of_program=Second())
  assert made == 3 and not hook.was_ended and not hook.data_ended  # the third has the vote


def test_the_programs_hook_takes_part_in_the_life_of_the_session():
  calls = []

  class Ours(LifecycleHook):
    """Notes each call."""

  def make(name, value=None):
    def method(self, *args):
      calls.append(name)
      return value
    return method

  names = [name for name in vars(LifecycleHook) if not name.startswith("_")]
  for name in names:
    setattr(Ours, name, make(name, {"a": "b"} if name == "texts_beside_checkpoint" else None))
  hook = step_vote.VotingHook(Ours(), None)
  assert isinstance(hook, LifecycleHook)
  for name in names:
    getattr(hook, name)(*([None] * (getattr(LifecycleHook, name).__code__.co_argcount - 1)))
  assert calls == names and hook.texts_beside_checkpoint() == {"a": "b"}
  stock = step_vote.VotingHook(tf.train.SessionRunHook(), None)
  assert stock.texts_beside_checkpoint() == {} and stock.begin_next_pass(None, None) is False


@pytest.mark.parametrize("finished", [True, False])
def test_it_leaves_when_the_others_have_made_the_last_step(caplog, finished):
  run = Run("silence", {1: training(1)}, {1: training(2), 2: training(1)},
            {1: (heartbeat.MEMBER_DONE, 2), 2: training(1)},
            {1: (heartbeat.MEMBER_DONE, 2), 2: training(2)})
  hook, _ = train(run)
  assert not run.is_over
  with caplog.at_level(logging.WARNING, "tf1ps"):
    hook.leave(None, finished)
  assert run.is_over and run.beats == 5 and not caplog.messages


def test_a_worker_that_has_failed_is_not_waited_for():
  run = Run({1: (heartbeat.MEMBER_FAILED, 0), 2: training(2)})
  hook, _ = train(run)
  hook.leave(None)
  assert run.beats == 1


@pytest.mark.parametrize("finished, limit", [(True, 0.6), (False, 0.3)])
def test_it_waits_for_who_stays_behind_until_a_limit_that_is_short_after_a_signal(
    caplog, set_timing, finished, limit):
  set_timing(step_vote, step_vote_limit=0.6, step_vote_limit_after_signal=0.3)
  run = Run({1: training(2), 2: training(1)})
  hook, _ = train(run)
  began = time.monotonic()
  with caplog.at_level(logging.WARNING, "tf1ps"):
    hook.leave(None, finished)
  assert limit <= time.monotonic() - began < limit + 5.0
  assert caplog.messages == [
    "/job:worker/task:2 did not report the last step within %.1f s" % limit]
