"""An ensemble of processes, linked by queues: a network may be slow, die and come back.

Each process describes the same `QueueEnsemble` and builds its part of it:

1. A `Feeder` gives a request a number, says so in the queue of requests, and puts its inputs into
   the input queue of each network, all in one run, with the time by the clock of the ps.
2. A `Network` takes what its input queue holds, up to a batch, calls the network, and puts the
   predictions into its prediction queue, each with its request's number and its age.
3. An `Aggregator` (aggregator.py) takes a request, waits for the predictions of its number until
   all have come or the time is over, and puts them together.

    ensemble = QueueEnsemble("prices", networks=3, input_shape=[4], device="/job:ps/task:0")

    feeder = Feeder(ensemble)                                     # one process
    feeder.feed(session, [5.1, 3.5, 1.4, 0.2])
    session.run(feeder.close)

    network = Network(ensemble, 2)                                # a process a network
    network.serve(session, lambda inputs: model.run(outputs, {images: inputs}))

    aggregator = Aggregator(ensemble, timeout=0.5, quorum=2)      # one process
    for answer in aggregator.answers(session):
      print(answer.number, answer.combined, answer.timed_out)

The session only moves elements; the network is computed by whatever the callable uses, such as a
`tf.Session` of this process with a graph of its own. Several processes may serve one network: they
share its queue. Several feeders may ask: their requests are told apart.

A network that does not take its inputs has a queue that is full one day; it then misses requests,
and nobody waits for room. An aggregator that does not keep up is waited for, by `feed`.
"""

from __future__ import annotations

import os
from typing import Callable, Optional, Sequence

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state import FIFOQueue, QueueCall, QueueEnded, QueueFull, shared_placement


def name_of(index: int) -> str:
  """What a network is called in answers, errors and the log."""
  return "net %d" % index


class QueueEnsemble:
  """An ensemble's queues, all on one task. Each is built when a part asks for it first.

  A request is told by (feeder, number), both int64.

  Attributes:
    networks: how many networks there are.
    input: the `tf.TensorSpec` of one request.
    prediction: the `tf.TensorSpec` of one prediction.
  """

  def __init__(self, name: str, networks: int, input_shape: Sequence[int] = (),
               prediction_shape: Sequence[int] = (), input_dtype=tf.float32,
               prediction_dtype=tf.float32, capacity: int = 100, *,
               device: Optional[str] = None, container: Optional[str] = None):
    """Describes the ensemble, in all processes alike, for the default graph.

    Args:
      name: its queues are called "<name>/requests", "<name>/inputs/0", "<name>/predictions/0" ...
      networks: how many there are.
      input_shape: of one request.
      prediction_shape: of one prediction.
      input_dtype: of requests.
      prediction_dtype: of predictions.
      capacity: how many requests may wait for the aggregator.
      device: where the queues live, such as "/job:ps/task:0"; see `FIFOQueue`.
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
    # Without a limit: a network never waits for room, not even where the aggregator is gone. What
    # it can hold is limited by the requests, and by the input queue of a network that is late.
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
  """Asks an ensemble.

  Attributes:
    missed: for each network, how many requests its full queue had no room for.
    close: an operation: no more requests will come. Networks and the aggregator end when they have
      done what there is. The next feeder needs another name or container, or a reset.
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
    """Asks all networks at once.

    Args:
      session: a session of the graph.
      inputs: of one request.
      timeout: seconds to wait while as many requests as the capacity have not been taken by the
        aggregator; None: as long as it takes.

    Returns:
      The number of the request among those of this feeder, from 0 on.

    Raises:
      queue_errors.QueueFull: the time was over; nothing was asked.
      queue_errors.QueueEnded: a feeder has closed the ensemble. queue_errors.QueueReset: its
      container was reset.
    """
    inputs = np.asarray(inputs, self._inputs.dtype.as_numpy_dtype)
    self._inputs.shape.assert_is_compatible_with(inputs.shape)
    number, self._next = self._next, self._next + 1
    # First the request: whatever comes out of a prediction queue belongs to one that was told.
    self._requests.put(session, [[self._id, number]], timeout)
    call = QueueCall(self._requests, session, "feed()", 1, timeout)
    counts = call.run(self._put, {self._number: number, self._inputs: inputs})
    for index, count in enumerate(counts):
      self.missed[index] += not count
    return number


class Network:
  """One network of an ensemble.

  Attributes:
    name: what it is called: "net 2".
  """

  def __init__(self, ensemble: QueueEnsemble, index: int):
    """Builds the operations of network `index` in the default graph."""
    if not 0 <= index < ensemble.networks:
      raise ValueError("index must be from 0 to networks - 1, got %r of %r" % (
        index, ensemble.networks))
    self.name = name_of(index)
    self._inputs, self._predictions = ensemble.inputs(index), ensemble.predictions(index)
    with tf.control_dependencies(None), tf.name_scope("network_%d" % index):
      self._heads = tf.placeholder(tf.int64, [None, 3], "heads")
      shape = tf.TensorShape([None]).concatenate(ensemble.prediction.shape)
      self._values = tf.placeholder(ensemble.prediction.dtype, shape, "values")
      age = ensemble.clock(self._inputs) - self._heads[:, 2]
      self._put = self._predictions.try_enqueue_many(
        [tf.stack([self._heads[:, 0], self._heads[:, 1], age], 1), self._values])

  def serve(self, session, predict: Callable, batch: int = 32) -> int:
    """Answers requests until a feeder closes the ensemble.

    Args:
      session: a session of the graph.
      predict: a callable: predictions `[n] + prediction_shape` from inputs `[n] + input_shape`.
      batch: how many requests at most are given to it at once.

    Returns:
      How many requests it answered.

    Raises:
      ValueError: predictions of another shape. queue_errors.QueueReset: the container was reset.
    """
    answered = 0
    while True:
      try:
        answered += self.answer(session, predict, batch)
      except QueueEnded:
        return answered

  def answer(self, session, predict: Callable, batch: int = 32,
             timeout: Optional[float] = None) -> int:
    """Answers what is there, as `serve` does again and again; returns how many requests it were.

    Raises:
      queue_errors.QueueEmpty: after `timeout` seconds without a request.
      queue_errors.QueueEnded: a feeder has closed the ensemble, and all requests were taken.
    """
    batch = min(batch, self._inputs.spec.capacity)
    heads, inputs = self._inputs.get(session, batch, up_to=True, timeout=timeout)
    values = np.asarray(predict(inputs), self._values.dtype.as_numpy_dtype)
    expected = (len(heads),) + tuple(self._values.shape.as_list()[1:])
    if values.shape != expected:
      raise ValueError("%s must predict %s for inputs of %s, it predicted %s" % (
        self.name, expected, inputs.shape, values.shape))
    call = QueueCall(
      self._predictions, session, "put(%d)" % len(heads), len(heads), None)
    count, present, closed = call.run(self._put, {self._heads: heads, self._values: values})
    if not count:
      call.pause(present, closed, QueueFull)  # it is closed: raises that
    return len(heads)
