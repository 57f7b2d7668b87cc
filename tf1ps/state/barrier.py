"""A barrier of shared queues: nobody goes on before everybody has come.

Each of n members owns a queue. In round r a member

1. puts a token (r, its index, when it came) into the queue of every other member;
2. takes tokens out of its own until each of the others has come to round r, or to a later one:
   whoever is in round r + 1 has seen that all had come to r;
3. goes on, and keeps the tokens of later rounds for its next wait.

The first wait of a member begins with a round of greetings, round -1, in which it learns where the
others are. So a member that was restarted joins them in the round that they are in. Who waits in a
later round and is greeted says once more where it is: what a killed member had taken out of its
queue comes again in this way, and nothing needs to be kept.
"""

from __future__ import annotations

import time
from typing import Dict, List, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state import pinning, queue_call, queue_errors, queues

_GREETING = -1  # the round before the first
_ALL = 2 ** 20  # tokens; more than ever wait


class BarrierTimeout(queue_errors.QueueTimeout):
  """Some members have not come within the limit. Waiting again goes on in the same round.

  Attributes:
    missing: the indices of the members that have not come.
    names: what they are called.
  """

  def __init__(self, reason: str, missing: Sequence[int], names: Sequence[str]):
    super().__init__(reason)
    self.missing = list(missing)
    self.names = list(names)


class Barrier:
  """A barrier of n shared queues, which can be used again and again.

  The queues stay on the server when the members have gone, with tokens that nobody took. So another
  run begins with another name, in another container or after a reset; or one member calls `clear`
  before any other one waits.

  Attributes:
    index: of this member.
    rounds: how many rounds all have passed, as far as this member knows. One that was restarted
      knows it after its first wait.
    names: what the members are called in errors.
    queues: a `queues.FIFOQueue` for each member.
  """

  def __init__(self, name: str, num_tasks: int, task_index: int,
               names: Optional[Sequence[str]] = None, *, device: Optional[str] = None,
               container: Optional[str] = None):
    """Builds the barrier's operations in the default graph; all members build the same.

    Args:
      name: of the barrier; its queues are called `<name>/0` and so on.
      num_tasks: how many members it has.
      task_index: the index of this one.
      names: what the members are called in errors; None: "/job:worker/task:0" and so on.
      device: where its queues live, such as "/job:ps/task:1"; see pinning.py.
      container: their container; see pinning.py.

    Raises:
      ValueError: no name, an index that is not below num_tasks, too few names.
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
    self._round = _GREETING
    # What each of the others has said that is not gone by: {round: when it came}.
    self._heard: Dict[int, Dict[int, int]] = {
      i: {} for i in range(num_tasks) if i != task_index}
    self._came: Dict[int, int] = {}  # when this one came, by round
    with pinning.shared_placement(name, device, container):
      self.queues = [
        queues.FIFOQueue(-1, [tf.int64], [[3]], shared_name="%s/%d" % (name, i),
                         container=container) for i in range(num_tasks)]
    self._build()

  def _build(self):
    with tf.control_dependencies(None), tf.name_scope("barrier"):
      self._round_in = tf.placeholder(tf.int64, [], "round")
      with tf.device(self.queues[0].device):  # one clock for all
        now = tf.cast(1e6 * tf.timestamp(), tf.int64)
      self._when = tf.placeholder_with_default(now, [], "when")
      token = tf.stack([self._round_in, tf.constant(self.index, tf.int64), self._when])
      self._put = [self.queues[i].try_enqueue_many(token[tf.newaxis]).count for i in self._heard]

  @property
  def rounds(self) -> int:
    return max(self._round, 0)

  def wait(self, session, timeout: float = 300.0) -> List[int]:
    """Waits until all members have come.

    Args:
      session: a session of the graph that the barrier was built in; no hooks are run.
      timeout: seconds.

    Returns:
      The indices of all members in the order in which they came, by the clock of the task that
      keeps the first queue: the same list to each member.

    Raises:
      BarrierTimeout: naming who is missing. The next wait goes on in the same round.
      queue_errors.QueueReset: the container was reset.
    """
    if timeout is None or not timeout >= 0:
      raise ValueError("timeout must be a number of seconds, 0 or more, got %r" % (timeout,))
    until = time.monotonic() + timeout
    if self._round == _GREETING:
      self._gather(session, timeout, until)
      newest = max((max(heard) for heard in self._heard.values()), default=0)
      self._round = max(newest, 0)
      self._came[self._round] = self._came[_GREETING]
    self._gather(session, timeout, until)
    came = {i: heard[min(r for r in heard if r >= self._round)]
            for i, heard in self._heard.items()}
    came[self.index] = self._came[self._round]
    self._round += 1
    self._came.clear()
    for i, heard in self._heard.items():
      self._heard[i] = {r: when for r, when in heard.items() if r >= self._round}
    return sorted(came, key=lambda i: (came[i], i))

  def clear(self, session) -> None:
    """Takes out what an older run has left, in all queues; to be called before anybody waits."""
    for queue in self.queues:
      queue.drain(session)

  def _gather(self, session, timeout, until):
    """Waits until each of the others has come to this round."""
    self._announce(session)
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
          "barrier %s: %d of %d came within %g s; missing: %s" % (
            self._name, len(self.names) - len(missing), len(self.names), timeout,
            ", ".join(names)), missing, names) from error
      if self._hear(tokens):
        self._announce(session)

  def _hear(self, tokens: np.ndarray) -> bool:
    """Notes what tokens say; returns whether somebody asks by them where this member is."""
    for number, index, when in tokens.tolist():
      self._heard[index].setdefault(number, when)
    return self._round > _GREETING and _GREETING in tokens[:, 0]

  def _announce(self, session):
    """Tells the others that this member has come, in one run; again, it says the same."""
    feed = {self._round_in: self._round}
    if self._round in self._came:
      feed[self._when] = self._came[self._round]
    call = queue_call.QueueCall(self.queues[self.index], session, "barrier", 1, None)
    self._came[self._round], _ = call.run([self._when, self._put], feed)
