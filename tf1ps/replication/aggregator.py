"""The end of a queue-linked ensemble: predictions become answers, whoever is missing.

For each request the aggregator

1. waits for the predictions of its number, from every network that is not left out, until they have
   come or the time is over;
2. leaves out whoever has not answered by then, from now on, and says so: a dead network delays one
   answer, and no more;
3. puts together what has come, also from those that are left out, where it is the quorum at least.

A prediction that comes later is nobody's: it has the number of its request. But it tells that its
network is alive. If it was made within the limit, by the clock of the ps and counted from when its
request was fed, its network is taken in again, for the next request. So a network that first works
off what has gathered in its queue, or is always slower than the limit, makes nobody wait.
"""

from __future__ import annotations

import logging
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.replication import queue_ensemble
from tf1ps.state import QueueCall, QueueEnded

_log = logging.getLogger("tf1ps")
_ALL = 2 ** 20  # elements; more than ever wait


class Answer(NamedTuple):
  """What an ensemble says to a request."""

  number: int  # of the request
  feeder: int  # a random number that tells feeders apart
  combined: object  # numpy: what those that answered say together
  predictions: np.ndarray  # [answered] + prediction_shape, in the order of the networks
  networks: List[int]  # the indices of those that answered
  timed_out: List[str]  # who was waited for in vain, and is left out from now on: ["net 2"]
  back: List[str]  # who was left out, and is waited for again since this answer
  seconds: float  # that the answer was waited for


class QuorumError(Error, RuntimeError):
  """Too few networks answered a request. The next call goes on with the next one.

  Attributes:
    answer: the `Answer` as far as it goes; its `combined` is None.
    silent: the names of all that did not answer.
  """

  def __init__(self, reason: str, answer: Answer, silent: Sequence[str]):
    super().__init__(reason)
    self.answer = answer
    self.silent = list(silent)


def vote_answers(predictions: np.ndarray) -> np.ndarray:
  """The class that most name, element by element of `[answered, ...]`; of several, the lowest."""
  same = (predictions[:, np.newaxis] == predictions[np.newaxis]).sum(0)
  wins = same == same.max(0)
  return np.where(wins, predictions, np.iinfo(predictions.dtype).max).min(0)


def mean_answers(predictions: np.ndarray) -> np.ndarray:
  """The mean of the predictions, `[answered, ...]`, element by element."""
  return predictions.mean(0)


class Aggregator:
  """Answers the requests of an ensemble, one after the other, in the order in which they came.

  Attributes:
    left_out: the names of the networks that are not waited for at present.
  """

  def __init__(self, ensemble: queue_ensemble.QueueEnsemble, timeout: float,
               quorum: Optional[int] = None, combine: Callable = mean_answers):
    """Builds the aggregator's operations in the default graph.

    Args:
      ensemble: whose requests it answers.
      timeout: seconds that an answer waits for the networks.
      quorum: how many networks must have answered; None: more than half of them.
      combine: a function of the predictions, `[answered] + prediction_shape`: `mean`, `vote`, or
        another one.

    Raises:
      ValueError: a timeout that is not above 0, a quorum that is not from 1 to `networks`.
    """
    quorum = ensemble.networks // 2 + 1 if quorum is None else quorum
    if not timeout > 0:
      raise ValueError("timeout must be a number of seconds above 0, got %r" % (timeout,))
    if not 1 <= quorum <= ensemble.networks:
      raise ValueError("quorum must be from 1 to networks, got %r of %r" % (
        quorum, ensemble.networks))
    self._timeout, self._quorum, self._combine = timeout, quorum, combine
    self._count = ensemble.networks
    self._left_out = set()
    self._back = set()  # taken in again since the last answer
    # Predictions of requests that are not answered yet: {(feeder, number): {network: prediction}}.
    self._got: Dict[tuple, Dict[int, np.ndarray]] = {}
    self._next: Dict[int, int] = {}  # by feeder: what comes for a lower number comes too late
    self._requests = ensemble.requests
    predictions = [ensemble.predictions(index) for index in range(self._count)]
    with tf.control_dependencies(None), tf.name_scope("aggregator"):
      self._take = [queue.try_dequeue_many(_ALL, up_to=True).components
                    for queue in predictions]

  @property
  def left_out(self) -> List[str]:
    return self._names(self._left_out)

  def answers(self, session) -> Iterator[Answer]:
    """Yields an answer for each request, until a feeder closes the ensemble.

    A `QuorumError` ends the iteration as any error does; another one goes on with the next request.
    """
    while True:
      try:
        answer = self.answer(session)
      except QueueEnded:
        return
      yield answer

  def answer(self, session, wait: Optional[float] = None) -> Answer:
    """Answers the next request.

    Args:
      session: a session of the graph.
      wait: seconds to wait for a request; None: as long as it takes.

    Returns:
      An `Answer`, after `timeout` seconds at most.

    Raises:
      QuorumError: too few networks answered.
      queue_errors.QueueEmpty: no request came. queue_errors.QueueEnded: a feeder has closed the
      ensemble. queue_errors.QueueReset: its container was reset.
    """
    feeder, number = self._requests.get(session, timeout=wait).tolist()
    began = time.monotonic()
    call = QueueCall(self._requests, session, "answer()", self._count, None)
    self._begin(feeder, number)
    got = self._got.setdefault((feeder, number), {})
    while True:
      self._hear(call.run(self._take))
      seconds = time.monotonic() - began
      missing = set(range(self._count)) - set(got) - self._left_out
      if (not missing and len(got) >= self._quorum) or seconds >= self._timeout:
        break
      time.sleep(max(0.0, min(self._requests.poll_secs, self._timeout - seconds)))
    self._begin(feeder, number + 1)
    return self._conclude(Answer(
      number, feeder, None, np.array([got[index] for index in sorted(got)]), sorted(got),
      self._names(missing), [], seconds), missing)

  def _begin(self, feeder, number):
    """From now on, predictions for lower numbers of this feeder come too late."""
    self._next[feeder] = number
    self._got = {key: got for key, got in self._got.items()
                 if key[0] != feeder or key[1] >= number}

  def _hear(self, taken):
    """Sorts predictions by their requests; notes who is back."""
    for index, (heads, values) in enumerate(taken):
      for (feeder, number, age), value in zip(heads.tolist(), values):
        if number >= self._next.get(feeder, 0):
          self._got.setdefault((feeder, number), {})[index] = value
        if index in self._left_out and age <= 1e6 * self._timeout:
          self._left_out.discard(index)
          self._back.add(index)
          _log.warning("%s is back", queue_ensemble.name_of(index))

  def _conclude(self, answer, missing):
    """Leaves out who is missing; completes the answer, or raises the error."""
    for name in answer.timed_out:
      _log.warning("%s timed out: no prediction for request %d within %g s; the next ones do not "
                   "wait for it", name, answer.number, self._timeout)
    self._left_out |= missing
    answer = answer._replace(back=self._names(self._back - missing))
    self._back = set()
    if len(answer.networks) < self._quorum:
      silent = self._names(set(range(self._count)) - set(answer.networks))
      raise QuorumError(
        "request %d: %d of %d networks answered within %g s, %d are needed; silent: %s" % (
          answer.number, len(answer.networks), self._count, self._timeout, self._quorum,
          ", ".join(silent)), answer, silent)
    return answer._replace(combined=self._combine(answer.predictions))

  def _names(self, indices):
    return [queue_ensemble.name_of(index) for index in sorted(indices)]
