"""A barrier of shared queues: no member passes before all members have arrived.

Each of n members owns a queue. In round r a member

1. enqueues a token (r, its index, its arrival time) in the queue of every other member;
2. dequeues tokens from its own queue until each other member has arrived in round r or in a later
   round: a member in round r + 1 has seen that all members had arrived in round r;
3. passes, and keeps the tokens of later rounds for its next wait.

The first wait of a member begins with a round of greetings, round -1, in which it learns the round
of the other members. So a restarted member joins them in their current round. A member that waits
in a later round answers a greeting by sending its token again. The repeated token replaces the
tokens that a killed member had dequeued, so the barrier stores nothing else.

No two members are more than one round apart. A quorum would break this rule: members that pass
early would know other orders of arrival, and a restarted member would find several current rounds.
"""

from __future__ import annotations

import time
from typing import Dict, List, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state import pinning, queue_call, queue_errors, queues

_GREETING = -1  # the round before the first
_ALL = 2 ** 20  # tokens; more than the number that can be in a queue


class BarrierTimeout(queue_errors.QueueTimeout):
  """Some members have not arrived within the limit. The next wait continues the same round.

  Attributes:
    missing: the indices of the members that have not arrived.
    names: their names.
  """

  def __init__(self, reason: str, missing: Sequence[int], names: Sequence[str]):
    super().__init__(reason)
    self.missing = list(missing)
    self.names = list(names)


class Barrier:
  """A reusable barrier of n shared queues.

  The queues stay on the server after the members have gone, with the remaining tokens. So give the
  next run another name or container, reset the container, or call `clear` in one member before
  any other member waits.

  Attributes:
    index: the index of this member.
    rounds: the number of rounds that all members have passed, as far as this member knows. A
      restarted member knows the number after its first wait.
    names: the names of the members, for errors.
    queues: a `FIFOQueue` per member.
  """

  def __init__(self, name: str, num_tasks: int, task_index: int,
               names: Optional[Sequence[str]] = None, *, device: Optional[str] = None,
               container: Optional[str] = None):
    """Builds the barrier's operations in the default graph; all members build the same operations.

    Args:
      name: the name of the barrier; its queues have the names `<name>/0` and so on.
      num_tasks: the number of members.
      task_index: the index of this member.
      names: the names of the members, for errors; None: "/job:worker/task:0" and so on.
      device: the device of the queues, such as "/job:ps/task:1". None: see pinning.py.
      container: the container of the queues. None: see pinning.py.

    Raises:
      ValueError: there is no name, the index is not below num_tasks, or there are too few names.
    """
    if not name:
      raise ValueError("a barrier needs a name, or each member would be alone behind it")
    if num_tasks < 1 or not 0 <= task_index < num_tasks:
      raise ValueError("task_index must be from 0 to num_tasks - 1, got %r of %r" % (
        task_index, num_tasks))
    self.index = task_index
    self.names = list(names or ["/job:worker/task:%d" % i for i in range(num_tasks)])
    if len(self.names) != num_tasks:
      raise ValueError("a barrier of %d members needs as many names, got %r" % (num_tasks, names))
    self._name = name
    self._start_over()
    with pinning.shared_placement(name, device, container):
      self.queues = [
        queues.FIFOQueue(-1, [tf.int64], [[3]], shared_name="%s/%d" % (name, i),
                         container=container) for i in range(num_tasks)]
    self._build()

  def _start_over(self):
    self._round = _GREETING
    # Each other member's rounds, from the current round on: {index: {round: arrival time}}.
    self._heard: Dict[int, Dict[int, int]] = {
      i: {} for i in range(len(self.names)) if i != self.index}
    self._arrived: Dict[int, int] = {}  # the arrival times of this member, by round

  def _build(self):
    with tf.control_dependencies(None), tf.name_scope("barrier"):
      self._round_in = tf.placeholder(tf.int64, [], "round")
      with tf.device(self.queues[0].device):  # one clock for all members
        now = tf.cast(1e6 * tf.timestamp(), tf.int64)
      self._when = tf.placeholder_with_default(now, [], "when")
      token = tf.stack([self._round_in, tf.constant(self.index, tf.int64), self._when])
      self._put = [self.queues[i].try_enqueue_many(token[tf.newaxis]).count for i in self._heard]

  @property
  def rounds(self) -> int:
    return max(self._round, 0)

  def wait(self, session: tf.Session, timeout: float = 300.0) -> List[int]:
    """Waits until all members have arrived.

    Args:
      session: a session of the barrier's graph; its hooks do not run.
      timeout: seconds.

    Returns:
      The indices of all members in the order of their arrival, by the clock of the task that holds
      the first queue. All members get the same list.

    Raises:
      BarrierTimeout: members are missing; the error names them. The next wait continues the same
        round.
      QueueReset: the container was reset.
      QueueUnanswered: the ps did not answer. Tokens may be lost, so the next wait begins like the
        first wait of a restarted member.
    """
    if timeout is None or not timeout >= 0:
      raise ValueError("timeout must be a number of seconds, 0 or more, got %r" % (timeout,))
    try:
      return self._wait(session, timeout, time.monotonic() + timeout)
    except queue_errors.QueueUnanswered:
      self._start_over()
      raise

  def _wait(self, session, timeout, until):
    if self._round == _GREETING:
      self._gather(session, timeout, until)
      newest = max((max(heard) for heard in self._heard.values()), default=0)
      self._round = max(newest, 0)
      self._arrived[self._round] = self._arrived[_GREETING]
    self._gather(session, timeout, until)
    arrived = {i: heard[min(r for r in heard if r >= self._round)]
               for i, heard in self._heard.items()}
    arrived[self.index] = self._arrived[self._round]
    self._round += 1
    self._arrived.clear()
    for i, heard in self._heard.items():
      self._heard[i] = {r: when for r, when in heard.items() if r >= self._round}
    return sorted(arrived, key=lambda i: (arrived[i], i))

  def clear(self, session: tf.Session) -> None:
    """Removes the tokens of an older run from all queues. Call it before any member waits."""
    for queue in self.queues:
      queue.drain(session)

  def _gather(self, session, timeout, until):
    """Waits until each other member has arrived in this round."""
    self._announce(session, until)
    own = self.queues[self.index]
    while True:
      missing = [i for i, heard in self._heard.items() if not any(r >= self._round for r in heard)]
      if not missing:
        return
      left = until - time.monotonic()
      try:
        tokens = own.get(session, _ALL, up_to=True, timeout=max(0.0, left))
      except queue_errors.QueueEmpty as error:
        names = [self.names[i] for i in missing]
        raise BarrierTimeout(
          "barrier %s: %d of %d arrived within %g s; missing: %s" % (
            self._name, len(self.names) - len(missing), len(self.names), timeout,
            ", ".join(names)), missing, names) from error
      if self._hear(tokens):
        self._announce(session, until)

  def _hear(self, tokens: np.ndarray) -> bool:
    """Stores tokens; returns whether a token is a greeting that this member must answer."""
    for number, index, when in tokens.tolist():
      self._heard[index].setdefault(number, when)
    return self._round > _GREETING and _GREETING in tokens[:, 0]

  def _announce(self, session, until):
    """Sends this member's token to the others in one run; a repeated token is the same token."""
    feed = {self._round_in: self._round}
    if self._round in self._arrived:
      feed[self._when] = self._arrived[self._round]
    call = queue_call.QueueCall(self.queues[self.index], session, "the barrier's token", 1,
                                max(0.0, until - time.monotonic()))
    self._arrived[self._round], _ = call.run([self._when, self._put], feed)
