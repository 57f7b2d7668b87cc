"""The hook of workers that make each step together: with each step they vote on the next one.

1. Before a step, the hook reads one batch ahead. The worker votes against the next step if it has
   no further batch, if its part of the examples is done, if a hook of the program requests a stop,
   or after a signal.
2. The step computes the mean of all votes.
3. If any worker voted against the next step, all workers end after this one.

At the end a worker waits until the other workers have made the last step: they may still need data
from its process. After a signal this wait is short.
"""

from __future__ import annotations

import collections
import logging
import time
from typing import Callable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import LifecycleHook
from tf1ps.compat import TIMING
from tf1ps.session import Membership, SessionLifecycle
from tf1ps.state import ControlError
from tf1ps.training.step import Vote

_log = logging.getLogger("tf1ps")


class StepVote(LifecycleHook):
  """Ends training after the same step on all workers.

  Attributes:
    was_ended: whether another worker's vote ended training.
    data_ended: whether this worker has read its last batch.
  """

  def __init__(self, vote: Vote, membership: Membership,
               is_last: Callable[[int], bool] = lambda examples: False):
    """Creates the hook.

    Before a step of so many examples, `is_last(examples)` returns whether this worker's part is
    done after it.
    """
    self._ahead, self._vote, self._mean = vote
    self._membership, self._is_last = membership, is_last
    self._sizes = collections.deque()  # of the batches that were read and not yet trained on
    self.data_ended = False
    self._goes_on, self._is_asked = True, False
    self._steps = 0
    self._lifecycle: Optional[SessionLifecycle] = None
    self.was_ended = False

  def on_join(self, lifecycle: SessionLifecycle) -> None:
    self._lifecycle = lifecycle

  def before_run(self, run_context):
    session = run_context.session
    if not self._sizes:
      try:
        self._sizes.append(int(session.run(self._ahead.read)))
      except tf.errors.OutOfRangeError as error:  # An error: the other workers wait for a step.
        raise ValueError("this worker's share of the data is empty: it got no batch") from error
    if len(self._sizes) < 2 and not self.data_ended:
      try:
        self._sizes.append(int(session.run(self._ahead.read)))
      except tf.errors.OutOfRangeError:
        self.data_ended = True
    self._goes_on = len(self._sizes) > 1 and not (
      self._is_last(self._sizes[0]) or self._is_asked or self._lifecycle.signum is not None)
    return tf.train.SessionRunArgs(self._mean, {self._vote: float(self._goes_on)})

  def after_run(self, run_context, run_values):
    self._sizes.popleft()
    self._steps += 1
    if run_values.results < 1.0:
      self.was_ended = self._goes_on
      run_context.request_stop()

  def ask_end(self) -> None:
    """Votes against another step, from the next vote on."""
    self._is_asked = True

  @property
  def left(self) -> Optional[str]:
    """The number of examples that were read and not trained on, in words; None for 0."""
    return "%d examples were read and not trained on" % sum(self._sizes) if self._sizes else None

  def leave(self, session, finished=True):
    """Waits until the other workers have made the last step; after a signal, only briefly."""
    self._membership.is_over = True
    limit = TIMING.step_vote_limit if finished else TIMING.step_vote_limit_after_signal
    end = time.monotonic() + limit
    cluster = self._membership.cluster
    others = {task.name for task in cluster.replicas} - {cluster.task.name}
    while time.monotonic() < end:
      try:
        self._membership.heartbeat.beat()
      except ControlError:
        pass
      waits_for = others - {member.name for member in self._membership.heartbeat.members()
                            if member.has_ended or member.step >= self._steps}
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
    """Creates the hook; it stands behind `vote`."""
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
