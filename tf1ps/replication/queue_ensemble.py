"""An ensemble of processes, linked by queues: a network may be slow, die and return.

Each process describes the same `QueueEnsemble` and builds its part of it:

1. A `Feeder` numbers a request, puts the number into the queue of requests, and puts the inputs
   into the input queue of each network, all in one run, with the time by the ps's clock.
2. A `Network` takes a batch from its input queue, calls the network, and puts the predictions into
   its prediction queue, each with the number and the age of its request.
3. An `Aggregator` takes a request and waits for its predictions, from every network that is not
   left out, until all have arrived or the time is over.
4. From then on it leaves out each network that has not answered, and reports that: a dead network
   delays only one answer.
5. It combines the predictions that have arrived, also of networks that are left out, if they are
   the quorum at least.

    ensemble = QueueEnsemble("prices", networks=3, input_shape=[4], device="/job:ps/task:0")

    feeder = Feeder(ensemble)                                     # one process
    feeder.feed(session, [5.1, 3.5, 1.4, 0.2])
    session.run(feeder.close)

    network = Network(ensemble, 2)                                # one process per network
    network.serve(session, lambda inputs: model.run(outputs, {images: inputs}))

    aggregator = Aggregator(ensemble, timeout=0.5, quorum=2)      # one process
    for answer in aggregator.answers(session):
      print(answer.number, answer.combined, answer.timed_out)

The session only moves elements; the callable computes the network by its own means, such as another
`tf.Session` of this process. Several processes may serve one network: they share its queue. Several
feeders may send requests, each with its own numbers.

A prediction that arrives after its answer shows that its network is alive. If it was made within
the limit, by the ps's clock and counted from the feed of its request, the aggregator waits for its
network again, from the next request on. So no request waits for a network that first works off its
full queue, or is always slower than the limit.

A network with a full input queue misses requests, and no process waits for room. If an aggregator
does not keep up, `feed` waits for it.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.replication.ensemble import mean_predictions
from tf1ps.state import FIFOQueue, QueueCall, QueueEnded, QueueFull, shared_placement

_log = logging.getLogger("tf1ps")
_ALL = 2 ** 20  # elements; more than ever wait


def _name_of(index: int) -> str:
  """The name of a network in answers, errors and the log."""
  return "net %d" % index


def _at_once(timeout):
  """Returns the timeout of a call's second part, which never waits but for the server's answer."""
  return None if timeout is None else 0.0


class QueueEnsemble:
  """An ensemble's queues, all on one task; each is built at its first use.

  A request is known by (feeder, number), both int64.

  Attributes:
    networks: the number of networks.
    input: the `tf.TensorSpec` of one request.
    prediction: the `tf.TensorSpec` of one prediction.
  """

  def __init__(self, name: str, networks: int, input_shape: Sequence[int] = (),
               prediction_shape: Sequence[int] = (), input_dtype=tf.float32,
               prediction_dtype=tf.float32, capacity: int = 100, *,
               device: Optional[str] = None, container: Optional[str] = None):
    """Describes the ensemble, in all processes alike, for the default graph.

    Args:
      name: its queues have the names "<name>/requests", "<name>/inputs/0", "<name>/predictions/0"
        and so on.
      networks: the number of networks, at least 1.
      input_shape, input_dtype: those of one request.
      prediction_shape, prediction_dtype: those of one prediction.
      capacity: the number of requests that may wait for the aggregator.
      device: the task that the queues live on, such as "/job:ps/task:0"; see `FIFOQueue`.
      container: their container; see `FIFOQueue`.

    Raises:
      ValueError: no name, no networks.
    """
    if not name:
      raise ValueError("an ensemble needs a name, or each process would be alone with its queues")
    if networks < 1:
      raise ValueError("an ensemble needs at least one network, got networks=%r" % (networks,))
    self.networks = networks
    self.input = tf.TensorSpec(list(input_shape), input_dtype)
    self.prediction = tf.TensorSpec(list(prediction_shape), prediction_dtype)
    self._name, self._capacity = name, capacity
    self._device, self._container = device, container
    self._queues = {}

  @property
  def requests(self) -> FIFOQueue:
    """The queue of requests: [feeder, number]."""
    return self._queue("requests", self._capacity, 2)

  def inputs(self, index: int) -> FIFOQueue:
    """The input queue of a network: [feeder, number, when it was fed in microseconds], inputs."""
    # With room for the request that the aggregator has taken.
    return self._queue("inputs/%d" % index, self._capacity + 1, 3, self.input)

  def predictions(self, index: int) -> FIFOQueue:
    """The prediction queue of a network: [feeder, number, age in microseconds], prediction."""
    # Without a limit: a network never waits for room, even if the aggregator has ended. The
    # requests, and the input queue of a late network, limit the number of elements.
    return self._queue("predictions/%d" % index, -1, 3, self.prediction)

  def clock(self, queue: FIFOQueue) -> tf.Tensor:
    """Microseconds, by the clock of the task that the queues live on; an int64 scalar."""
    with tf.device(queue.device):
      return tf.cast(1e6 * tf.timestamp(), tf.int64)

  def _queue(self, name, capacity, head, *part):
    if name not in self._queues:
      with shared_placement(self._name, self._device, self._container), tf.control_dependencies(
        None
      ):
        self._queues[name] = FIFOQueue(
          capacity, [tf.int64] + [spec.dtype for spec in part],
          [[head]] + [spec.shape for spec in part],
          shared_name="%s/%s" % (self._name, name), container=self._container)
    return self._queues[name]


class Feeder:
  """Sends requests to an ensemble.

  Attributes:
    missed: for each network, the number of requests that its full queue had no room for.
    close: an operation that ends the requests. Networks and the aggregator end when they have
      processed all of them. The next feeder needs another name or container, or a reset.
  """

  def __init__(self, ensemble: QueueEnsemble):
    """Builds the feeder's operations in the default graph."""
    inputs = [ensemble.inputs(index) for index in range(ensemble.networks)]
    self.missed = [0] * ensemble.networks
    self._id = int.from_bytes(os.urandom(7), "big")
    self._next = 0
    self._requests = ensemble.requests
    with tf.control_dependencies(None), tf.name_scope("feeder"):
      self._number = tf.placeholder(tf.int64, [], "number")
      self._inputs = tf.placeholder(ensemble.input.dtype, ensemble.input.shape, "inputs")
      head = tf.stack([
        tf.constant(self._id, tf.int64), self._number, ensemble.clock(self._requests)])
      self._put = [queue.try_enqueue_many([head[tf.newaxis], self._inputs[tf.newaxis]]).count
                   for queue in inputs]
      self.close = tf.group(*[queue.close() for queue in [self._requests] + inputs])

  def feed(self, session, inputs, timeout: Optional[float] = None) -> int:
    """Sends one request to all networks; returns its number among those of this feeder, from 0 on.

    Args:
      session: a session of the graph.
      inputs: the inputs of one request.
      timeout: seconds to wait while the queue of requests is full; None: without a limit.

    Raises:
      QueueFull: the time was over; no request was sent.
      QueueUnanswered: the server did not answer; some networks may have the request.
      QueueEnded: a feeder has closed the ensemble.
      QueueReset: its container was reset.
    """
    inputs = np.asarray(inputs, self._inputs.dtype.as_numpy_dtype)
    self._inputs.shape.assert_is_compatible_with(inputs.shape)
    number, self._next = self._next, self._next + 1
    # The request goes first, so that each prediction belongs to a known request.
    self._requests.put(session, [[self._id, number]], timeout)
    call = QueueCall(self._requests, session, "feed()", 1, _at_once(timeout))
    counts = call.run(self._put, {self._number: number, self._inputs: inputs})
    for index, count in enumerate(counts):
      self.missed[index] += not count
    return number


class Network:
  """One network of an ensemble.

  Attributes:
    name: such as "net 2".
  """

  def __init__(self, ensemble: QueueEnsemble, index: int):
    """Builds the operations of network `index` in the default graph."""
    if not 0 <= index < ensemble.networks:
      raise ValueError("index must be from 0 to networks - 1, got %r of %r" % (
        index, ensemble.networks))
    self.name = _name_of(index)
    self._inputs, self._predictions = ensemble.inputs(index), ensemble.predictions(index)
    with tf.control_dependencies(None), tf.name_scope("network_%d" % index):
      self._heads = tf.placeholder(tf.int64, [None, 3], "heads")
      shape = tf.TensorShape([None]).concatenate(ensemble.prediction.shape)
      self._values = tf.placeholder(ensemble.prediction.dtype, shape, "values")
      age = ensemble.clock(self._inputs) - self._heads[:, 2]
      self._put = self._predictions.try_enqueue_many(
        [tf.stack([self._heads[:, 0], self._heads[:, 1], age], 1), self._values])

  def serve(self, session, predict: Callable, batch: int = 32) -> int:
    """Answers requests until a feeder closes the ensemble; returns the number of its answers.

    Args:
      session: a session of the graph.
      predict: a callable: predictions `[n] + prediction_shape` from inputs `[n] + input_shape`.
      batch: the highest number of requests in one call.

    Raises:
      ValueError: predictions of another shape.
      QueueReset: the container was reset.
    """
    answered = 0
    while True:
      try:
        answered += self.answer(session, predict, batch)
      except QueueEnded:
        return answered

  def answer(self, session, predict: Callable, batch: int = 32,
             timeout: Optional[float] = None) -> int:
    """Answers the waiting requests once; `serve` repeats this call. Returns their number.

    Raises:
      QueueEmpty: no request arrived within `timeout` seconds.
      QueueEnded: a feeder has closed the ensemble, and all requests were taken.
    """
    batch = min(batch, self._inputs.spec.capacity)
    heads, inputs = self._inputs.get(session, batch, up_to=True, timeout=timeout)
    values = np.asarray(predict(inputs), self._values.dtype.as_numpy_dtype)
    expected = (len(heads),) + tuple(self._values.shape.as_list()[1:])
    if values.shape != expected:
      raise ValueError("%s must predict %s for inputs of %s, it predicted %s" % (
        self.name, expected, inputs.shape, values.shape))
    call = QueueCall(
      self._predictions, session, "put(%d)" % len(heads), len(heads), _at_once(timeout))
    count, present, closed = call.run(self._put, {self._heads: heads, self._values: values})
    if not count:
      call.pause(present, closed, QueueFull)  # it is closed: raises that
    return len(heads)


class Answer(NamedTuple):
  """The answer of an ensemble to a request."""

  number: int  # of the request
  feeder: int  # a random number, different for each feeder
  combined: object  # numpy: the combined prediction
  predictions: np.ndarray  # [answered] + prediction_shape, in the order of the networks
  networks: List[int]  # the indices of the networks that answered
  timed_out: List[str]  # the networks that are left out from now on, because of this: ["net 2"]
  back: List[str]  # the networks that were left out, and are awaited again since this answer
  seconds: float  # the time that the answer took


class QuorumError(Error, RuntimeError):
  """Too few networks answered a request. The next call goes on with the next one.

  Attributes:
    answer: the `Answer` as far as it goes; its `combined` is None.
    silent: the names of all networks that did not answer.
  """

  def __init__(self, reason: str, answer: Answer, silent: Sequence[str]):
    super().__init__(reason)
    self.answer = answer
    self.silent = list(silent)


class Aggregator:
  """Answers the requests of an ensemble, one after the other, in the order in which they came.

  Attributes:
    left_out: the names of the networks that no request waits for at present.
  """

  def __init__(self, ensemble: QueueEnsemble, timeout: float,
               quorum: Optional[int] = None, combine: Callable = mean_predictions):
    """Builds the aggregator's operations in the default graph.

    Args:
      ensemble: the ensemble whose requests it answers.
      timeout: seconds that an answer waits for the networks.
      quorum: the number of networks that must have answered; None: more than half of them.
      combine: a function of the predictions, `[answered] + prediction_shape`: `mean_predictions`,
        `vote_predictions`, or another one.

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
    self._next: Dict[int, int] = {}  # by feeder: a prediction for a lower number is too late
    self._requests = ensemble.requests
    predictions = [ensemble.predictions(index) for index in range(self._count)]
    with tf.control_dependencies(None), tf.name_scope("aggregator"):
      self._take = [queue.try_dequeue_many(_ALL, up_to=True).components for queue in predictions]

  @property
  def left_out(self) -> List[str]:
    return self._names(self._left_out)

  def answers(self, session) -> Iterator[Answer]:
    """Yields an answer for each request, until a feeder closes the ensemble or for a `QuorumError`.

    After the error, another iteration begins with the next request.
    """
    while True:
      try:
        answer = self.answer(session)
      except QueueEnded:
        return
      yield answer

  def answer(self, session, wait: Optional[float] = None) -> Answer:
    """Answers the next request; returns an `Answer`, after `timeout` seconds at most.

    Args:
      session: a session of the graph.
      wait: seconds to wait for a request; None: without a limit.

    Raises:
      QuorumError: too few networks answered.
      QueueEmpty: no request arrived.
      QueueUnanswered: the server did not answer; the request or predictions may be lost.
      QueueEnded: a feeder has closed the ensemble.
      QueueReset: its container was reset.
    """
    feeder, number = self._requests.get(session, timeout=wait).tolist()
    began = time.monotonic()
    call = QueueCall(self._requests, session, "answer()", self._count, self._timeout)
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
    """From now on, predictions for lower numbers of this feeder are too late."""
    self._next[feeder] = number
    self._got = {key: got for key, got in self._got.items() if key[0] != feeder or key[1] >= number}

  def _hear(self, taken):
    """Sorts predictions by their requests; takes networks in again."""
    for index, (heads, values) in enumerate(taken):
      for (feeder, number, age), value in zip(heads.tolist(), values):
        if number >= self._next.get(feeder, 0):
          self._got.setdefault((feeder, number), {})[index] = value
        if index in self._left_out and age <= 1e6 * self._timeout:
          self._left_out.discard(index)
          self._back.add(index)
          _log.warning("%s is back", _name_of(index))

  def _conclude(self, answer, missing):
    """Leaves out the missing networks; completes the answer, or raises the error."""
    for name in answer.timed_out:
      _log.warning("%s timed out: no prediction for request %d within %g s. Later requests do not "
                   "wait for it.", name, answer.number, self._timeout)
    self._left_out |= missing
    answer = answer._replace(back=self._names(self._back - missing))
    self._back = set()
    if len(answer.networks) < self._quorum:
      silent = self._names(set(range(self._count)) - set(answer.networks))
      raise QuorumError(
        "request %d: %d of %d networks answered within %g s, %d are needed. Silent: %s" % (
          answer.number, len(answer.networks), self._count, self._timeout, self._quorum,
          ", ".join(silent)), answer, silent)
    return answer._replace(combined=self._combine(answer.predictions))

  def _names(self, indices):
    return [_name_of(index) for index in sorted(indices)]
