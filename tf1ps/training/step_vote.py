"""The hook of workers that make each step together: with each step they vote on the next step.

1. Before a step, the hook reads one batch ahead. The worker votes against the next step if it has
   no further batch, if its part of the examples is done, if a hook of the program requests a stop,
   or after a signal.
2. The step computes the mean of all votes.
3. If any worker voted against the next step, all workers end after this step. The vote of a worker
   that a signal ends makes the mean negative, which tells the others that the job is not done.

After the last step, each worker except the chief stays in its loop until the chief has saved the
last checkpoint, or has ended. If a worker is lost before that, the sessions of all workers end, and
the workers repeat the steps since the previous checkpoint. A worker that leaves its loop waits
until the other workers have made the last step, because they may still need its process. After a
signal this wait is short. A signal to one worker ends the loops of all workers. Each other worker
then fails, so that a scheduler starts it again.
"""

from __future__ import annotations

import collections
import logging
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import JobLostError, LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.session import Membership, SessionLifecycle
from tf1ps.training.counts import Counts
from tf1ps.training.step import Vote

_log = logging.getLogger("tf1ps")


class StepVote(LifecycleHook):
  """Ends training after the same step on all workers.

  `Counts.data_ended` says here that this worker has read its last batch.
  """

  def __init__(self, vote: Vote, membership: Membership, counts: Counts,
               is_last: Callable[[int], bool] = lambda examples: False):
    """Creates the hook.

    Before a step of `examples` examples, `is_last(examples)` returns whether this worker's part is
    done after that step.
    """
    self._ahead, self._vote, self._mean = vote
    self._membership, self._counts, self._is_last = membership, counts, is_last
    self._sizes = collections.deque()  # of the batches that were read and not yet trained on
    self._goes_on, self._is_asked = True, False
    self._lifecycle: Optional[SessionLifecycle] = None

  def on_join(self, lifecycle: SessionLifecycle) -> None:
    self._lifecycle = lifecycle

  def after_create_session(self, session, coord):
    self._ahead.clear(session)
    self._sizes.clear()
    self._is_asked = False  # the restored step may lie before the step of that request
    self._counts.data_ended, self._counts.was_ended, self._counts.left = False, False, None
    self._counts.by_signal = False

  def before_run(self, run_context):
    session = run_context.session
    if not self._sizes:
      try:
        self._sizes.append(int(session.run(self._ahead.read)))
      except tf.errors.OutOfRangeError as error:  # An error: the other workers wait for a step.
        raise ValueError("this worker's share of the data is empty: it got no batch") from error
    if len(self._sizes) < 2 and not self._counts.data_ended:
      try:
        self._sizes.append(int(session.run(self._ahead.read)))
      except tf.errors.OutOfRangeError:
        self._counts.data_ended = True
    has_signal = self._lifecycle.signum is not None
    self._goes_on = len(self._sizes) > 1 and not (
      self._is_last(self._sizes[0]) or self._is_asked or has_signal)
    vote = -len(self._membership.cluster.replicas) if has_signal else self._goes_on
    return tf.train.SessionRunArgs(self._mean, {self._vote: float(vote)})

  def after_run(self, run_context, run_values):
    self._sizes.popleft()
    if run_values.results < 1.0:
      self._counts.was_ended = self._goes_on
      self._counts.by_signal = bool(run_values.results < 0)
      if self._sizes:
        self._counts.left = "%d examples were read and not trained on" % sum(self._sizes)
      run_context.request_stop()
    if run_context.stop_requested:
      self._counts.tracker.ask(run_context.session)  # for the heartbeat
      if not self._membership.is_chief:
        self._await_last_checkpoint(run_context.session)
      self._membership.is_over = True
      run_context.session.run([])  # raises the error of a session that was lost before that

  def _await_last_checkpoint(self, session):
    while self._lifecycle.signum is None:
      self._membership.heartbeat.try_beat()
      if self._membership.awaits_nothing:
        if self._counts.by_signal:
          raise JobLostError("a signal to another worker has ended the run before its goal: start "
                             "all tasks again, and the run goes on from its last checkpoint")
        return
      session.run([])  # raises the error of a session that has lost a worker
      time.sleep(TIMING.poll_interval)

  def ask_end(self) -> None:
    """Votes against another step, from the next vote on."""
    self._is_asked = True

  def leave(self, session, finished=True):
    """Waits until the other workers have made the last step; after a signal, only briefly.

    A chief that no signal ends does not wait here: it ends only after the others have reported.
    """
    self._membership.is_over = True
    if self._membership.is_chief and finished:
      return
    last = self._counts.tracker.value
    limit = TIMING.step_vote_limit if finished else TIMING.step_vote_limit_after_signal
    end = time.monotonic() + limit
    cluster = self._membership.cluster
    others = {task.name for task in cluster.replicas} - {cluster.task.name}
    while time.monotonic() < end:
      self._membership.heartbeat.try_beat()
      waits_for = others - {member.name for member in self._membership.heartbeat.members()
                            if member.has_ended or member.saved or member.global_step >= last}
      if not waits_for:
        return
      time.sleep(TIMING.fast_poll_interval)
    _log.warning("%s did not report the last step within %.1f s", ", ".join(sorted(waits_for)),
                 limit)


class VotingHook(LifecycleHook):
  """A program's hook whose request to stop becomes a vote: all workers end after the next step."""

  _PASSED_ON = ("begin", "end", "after_create_session",
                *(name for name in vars(LifecycleHook) if not name.startswith("_")))

  def __init__(self, hook: tf.train.SessionRunHook, vote: StepVote):
    """Creates the hook; it must come after the hook `vote`."""
    self._hook, self._vote = hook, vote
    for name in self._PASSED_ON:
      if hasattr(hook, name):
        setattr(self, name, getattr(hook, name))

  def before_run(self, run_context):
    return self._ask(run_context, self._hook.before_run)

  def after_run(self, run_context, run_values):
    self._ask(run_context, self._hook.after_run, run_values)

  def _ask(self, run_context, method, *args):
    inner = tf.train.SessionRunContext(run_context.original_args, run_context.session)
    result = method(inner, *args)
    if inner.stop_requested:
      self._vote.ask_end()
    return result
