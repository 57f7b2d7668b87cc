from __future__ import annotations

import logging
import time
import types

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.checkpoint import global_step
from tf1ps.cluster import JobLostError, LifecycleHook, parsing
from tf1ps.cluster.session import BoundedSession
from tf1ps.state import heartbeat
from tf1ps.training import batch_ahead, step_vote
from tf1ps.training.counts import Counts
from tf1ps.training.step import Vote

CLUSTER = parsing.resolve_cluster(
  worker_hosts=harness.addresses(3), job_name="worker", task_index=0, needs_ps=False)


class Run(object):
  """Stands for a membership of a run: each beat is a round, which shows the others' steps.

  The chief has left after `chief_beats` of them; None: this is the chief.
  """

  def __init__(self, *rounds, chief_beats=None):
    self.cluster, self.is_over, self.heartbeat = CLUSTER, False, self
    self.is_chief, self._chief_beats = chief_beats is None, chief_beats
    self._rounds, self.beats = rounds, 0

  @property
  def awaits_nothing(self):
    return self.beats >= self._chief_beats

  def try_beat(self):
    self.beats += 1

  def members(self):
    steps = {} if self._round == "silence" else self._round
    return [heartbeat.Member("worker", index, "worker", "host", 1, "run", state, 0, step, 0, "", 0)
            for index, (state, step) in steps.items()]

  @property
  def _round(self):
    return self._rounds[min(self.beats, len(self._rounds)) - 1]


def training(step):
  return heartbeat.MEMBER_TRAINING, step


def train(run=None, batches=2, votes=None, of_program=None, signum=None, creator=None):
  """Makes a worker's steps, alone or with this mean of votes.

  Returns its hook, the number of steps, and the ledger.

  `of_program` is a hook of the program, or None; `signum` a signal before the first step.
  """
  with tf.Graph().as_default():
    data = tf.data.Dataset.from_tensor_slices(np.zeros([4 * batches])).batch(4)
    ahead = batch_ahead.BatchAhead()
    x, _ = ahead.pass_through((tf.data.make_one_shot_iterator(data).get_next(), None))
    vote = tf.placeholder_with_default(tf.constant(1.0), [])
    mean = vote if votes is None else tf.minimum(vote, votes)
    counts = Counts(global_step.GlobalStepTracker())
    hook = step_vote.StepVote(Vote(ahead, vote, mean), run or Run({}), counts)
    hook.on_join(types.SimpleNamespace(signum=signum))
    step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    steps = 0
    hooks = [counts.tracker, hook]
    hooks += [] if of_program is None else [step_vote.VotingHook(of_program, hook)]
    with tf.train.MonitoredSession(creator, hooks=hooks) as session:
      while not session.should_stop():
        session.run([x, step])
        steps += 1
  return hook, steps, counts


@pytest.mark.parametrize("batches, votes, steps, was_ended, left", [
  (3, None, 3, False, None),
  (3, 0.5, 1, True, "4 examples were read and not trained on")])
def test_training_ends_with_the_step_in_which_anybody_is_against_another_one(
    batches, votes, steps, was_ended, left):
  _, made, counts = train(batches=batches, votes=votes)
  assert (made, counts.was_ended, counts.left) == (steps, was_ended, left)


@pytest.mark.parametrize("vote, signum, by_signal", [
  (None, None, False), (0.5, None, False), (-1 / 3, None, True), (None, 15, True)])
def test_a_loop_that_a_signal_of_any_worker_ends_is_known(vote, signum, by_signal):
  _, _, counts = train(batches=2, votes=vote, signum=signum)
  assert counts.by_signal == by_signal


def test_a_worker_that_anothers_signal_ends_fails_so_that_a_scheduler_starts_it_again():
  with pytest.raises(JobLostError, match="a signal to another worker has ended the run before"):
    train(Run({}, chief_beats=2), votes=-1 / 3)
  train(Run({}, chief_beats=2), votes=0.5)


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

  _, made, counts = train(batches=9, of_program=Second())
  assert made == 3 and not counts.was_ended and not counts.data_ended  # the third has the vote


def test_a_request_is_forgotten_where_the_job_goes_back_before_its_last_step():
  class Second(tf.train.SessionRunHook):
    runs = 0

    def after_run(self, run_context, run_values):
      self.runs += 1
      if self.runs == 2:
        run_context.request_stop()
      if self.runs == 3:
        raise tf.errors.AbortedError(None, None, "a worker was lost")

  _, made, counts = train(batches=9, of_program=Second())
  assert made == 2 + 9 and counts.data_ended  # the new session begins with the first batch


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
            {1: (heartbeat.MEMBER_DONE, 2), 2: training(2)}, chief_beats=0)
  hook, *_ = train(run)
  run.beats = 0
  with caplog.at_level(logging.WARNING, "tf1ps"):
    hook.leave(None, finished)
  assert run.is_over and run.beats == 5 and not caplog.messages


def test_a_worker_that_has_failed_is_not_waited_for():
  run = Run({1: (heartbeat.MEMBER_FAILED, 0), 2: training(2)}, chief_beats=0)
  hook, *_ = train(run)
  run.beats = 0
  hook.leave(None)
  assert run.beats == 1


def test_the_chief_leaves_behind_the_reports_and_waits_for_no_last_step():
  run = Run({1: training(1)})
  hook, *_ = train(run)
  hook.leave(None)
  assert run.is_over and run.beats == 0


def test_another_worker_stays_in_its_loop_until_the_chief_has_saved():
  run = Run({}, chief_beats=3)
  train(run)
  assert run.is_over and run.beats == 3


def test_a_worker_whose_session_is_lost_before_that_makes_the_steps_again():
  class Lost(Run):
    is_lost = True

    @property
    def awaits_nothing(self):
      if self.is_lost:
        self.is_lost = False
        raise tf.errors.AbortedError(None, None, "a worker was killed")
      return True

  run = Lost({}, chief_beats=0)
  _, _, counts = train(run, batches=3)
  assert run.is_over and not counts.was_ended
  assert (counts.tracker.own_steps, counts.tracker.value) == (6, 3)


def test_a_worker_that_is_lost_as_the_last_step_ends_is_no_loss_behind_the_loop():
  """The session is aborted between the last step and its end, and not in the save behind it."""
  class Creator(tf.train.SessionCreator):
    made = []

    def create_session(self):
      self.made.append(BoundedSession())
      self.made[-1].run(tf.global_variables_initializer())
      return self.made[-1]

  class Lost(Run):
    _is_over = False

    @property
    def is_over(self):
      return self._is_over

    @is_over.setter
    def is_over(self, value):
      if value and len(Creator.made) == 1:
        Creator.made[0].abort(lambda: tf.errors.AbortedError(None, None, "a worker was killed"))
      self._is_over = value

  run = Lost({})
  _, _, counts = train(run, batches=3, creator=Creator())
  assert run.is_over and len(Creator.made) == 2
  assert (counts.tracker.own_steps, counts.tracker.value) == (6, 3)


@pytest.mark.parametrize("finished, limit", [(True, 0.6), (False, 0.3)])
def test_it_waits_for_who_stays_behind_until_a_limit_that_is_short_after_a_signal(
    caplog, set_timing, finished, limit):
  set_timing(step_vote, step_vote_limit=0.6, step_vote_limit_after_signal=0.3)
  run = Run({1: training(2), 2: training(1)}, chief_beats=0)
  hook, *_ = train(run)
  began = time.monotonic()
  with caplog.at_level(logging.WARNING, "tf1ps"):
    hook.leave(None, finished)
  assert time.monotonic() - began >= limit
  assert caplog.messages == [
    "/job:worker/task:2 did not report the last step within %.1f s" % limit]
