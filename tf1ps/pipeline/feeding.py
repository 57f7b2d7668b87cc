"""Feeding from Python: a thread pulls from a generator and enqueues, while training computes.

1. `feed` builds a short queue of whole batches on the worker, and adds a queue runner of its own to
   the graph: whoever starts the queue runners starts it, monitored sessions without a word.
2. The runner's thread calls the generator function, once for each session and epoch, makes batches
   of the elements, and enqueues them. Feeding by hand does all of that between two steps.
3. When the generator has ended, the queue is closed: what is inside still comes out, and then there
   is an OutOfRangeError. An exception of the generator's reaches the consumer in its place.
4. When the session ends, the thread's enqueue is cancelled, and its generator is closed. One that
   is waiting for something does not hear of it; it is left behind, in a daemon thread.

A session that is made anew after a failure begins with a new generator.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import traceback
from typing import Any, Callable, Iterable, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, retry_refused_run
from tf1ps.pipeline import on_worker, python_batches, runner_failures, runner_threads
from tf1ps.pipeline import shard as shard_lib

# From a generator they would look like the data's end, or like a server that has gone.
_NOT_ITS_OWN = (tf.errors.OutOfRangeError, tf.errors.CancelledError, tf.errors.AbortedError,
                tf.errors.UnavailableError)


def feed(generator_fn: Callable[..., Iterable], dtypes: Any, shapes: Any = None,
         batch_size: Optional[int] = None, capacity: int = 4,
         shard: Optional[shard_lib.Shard] = None, drop_remainder: bool = False, *,
         name: str = "feed", worker_device: Optional[str] = None) -> Any:
  """Batches of what a Python generator yields.

  Args:
    generator_fn: returns the iterable, such as a generator function. One that takes two parameters
      is called with this worker's index and the number of workers, and yields this worker's part.
    dtypes: the type, or any structure of types, of an element.
    shapes: the same structure of shapes of an element. A dimension may be None: the elements of a
      batch are padded with zeros to the largest. None: unknown, only where batch_size is None.
    batch_size: elements in a batch. None: the generator yields whole batches.
    capacity: batches that wait.
    shard: this worker's share. In training the generator is run again for each epoch, and one
      without parameters is divided: every count-th element is used. None: all of it, once.
    drop_remainder: whether a last batch of fewer elements than the others is left out.
    name: of the operations.
    worker_device: see on_worker.py.

  Returns:
    The structure of `dtypes`, of tensors: a batch.

  Raises:
    TypeError, ValueError: arguments that do not fit.
  """
  _at_least_one("capacity", capacity)
  if batch_size is not None:
    _at_least_one("batch_size", batch_size)
  parts = python_batches.components(dtypes, shapes, batch_size is not None)
  make = _maker(generator_fn, shard)
  is_full = drop_remainder or (
    shard is not None and shard.epochs is None and shard.mode == "train")
  first = [] if batch_size is None else [batch_size if is_full else None]
  with on_worker.scope(worker_device), tf.name_scope(name):
    inputs = [tf.placeholder(one.dtype, tf.TensorShape(first).concatenate(one.shape))
              for one in parts]
    queue = tf.FIFOQueue(capacity, [one.dtype for one in parts], name="batches")
    enqueue = queue.enqueue(inputs)
    taken = queue.dequeue(name="batch")
    runner = FeedingRunner(queue, enqueue, inputs, lambda: python_batches.batches(
      make(), dtypes, parts, batch_size, drop_remainder))
  tf.train.add_queue_runner(runner)
  found = taken if isinstance(taken, (list, tuple)) else [taken]
  for tensor, fed in zip(found, inputs):
    tensor.set_shape(fed.shape)
  return tf.nest.pack_sequence_as(dtypes, found)


class FeedingRunner(tf.train.QueueRunner):
  """A queue runner whose thread pulls from a Python iterable.

  Attributes:
    was_started: whether threads were made for any session.
  """

  def __init__(self, queue, enqueue, inputs, make: Callable[[], Iterable]):
    """Creates the runner.

    Args:
      queue: the queue.
      enqueue: the operation that enqueues.
      inputs: the placeholders that it takes.
      make: returns an iterable of lists of values for them.
    """
    super().__init__(queue, [enqueue])
    self.was_started = False
    self._inputs = inputs
    self._make = make
    self._feeders = []

  def create_threads(self, sess, coord=None, daemon=False, start=False):
    """Like that of `tf.train.QueueRunner`: the thread ends at the latest 0.3 s after a stop."""
    self._feeders = [one for one in self._feeders if not one.is_over]
    if any(one.session is sess for one in self._feeders):
      return []
    self.was_started = True
    feeder = _Feeder(self, sess, coord)
    self._feeders.append(feeder)
    thread = runner_threads.RunnerThread(
      target=feeder.watch, daemon=daemon or None, name="tf1ps: feeding %s" % self.queue.name)
    thread.enqueues = False
    if coord is not None:
      coord.register_thread(thread)
    if start:
      thread.start()
    return [thread]


class _Feeder:
  """The feeding of one session: a thread that can be left behind, and one that watches it."""

  def __init__(self, runner, session, coord):
    self.session = session
    self.is_over = False
    self._runner = runner
    self._coord = coord
    self._failures = runner_failures.connect(session, coord)
    kind = runner_threads.class_of(session)
    runs = (runner.enqueue_ops[0], runner.close_op, runner.cancel_op)
    self._enqueue = kind.make_callable(session, runs[0], feed_list=runner._inputs)
    self._close, self._cancel = (kind.make_callable(session, op) for op in runs[1:])

  def watch(self):
    """Starts the thread, and ends it when the coordinator stops."""
    thread = threading.Thread(target=self._work, daemon=True,
                              name="tf1ps: generator of %s" % self._runner.queue.name)
    thread.start()
    if self._coord is None:
      thread.join()
      return
    self._coord.wait_for_stop()
    self.is_over = True
    canceller = threading.Thread(target=self._quietly, args=(self._cancel,), daemon=True,
                                 name="tf1ps: cancel %s" % self._runner.queue.name)
    canceller.start()
    thread.join(TIMING.generator_end_limit)

  def _work(self):
    try:
      batches = self._runner._make()
      try:
        self._feed(batches)
      finally:
        batches.close()
    except Exception as error:
      if not self.is_over:
        self._failures.record(error, "%s (%s)" % (self._runner.queue.name, _place(error)))
    if not self.is_over:
      self._quietly(self._close)
    self.is_over = True

  def _feed(self, batches):
    while True:
      try:
        values = next(batches)
      except StopIteration:
        return
      except _NOT_ITS_OWN as error:
        raise RuntimeError("the generator raised %s: %s" % (type(error).__name__, error)) from error
      if self.is_over:
        return
      try:
        retry_refused_run(self._enqueue, *values)
      except tf.errors.CancelledError:  # the queue was closed
        return
      except (tf.errors.OpError, RuntimeError):
        if not self.is_over:  # else the session was closed meanwhile
          raise

  def _quietly(self, run):
    try:
      run()
    except Exception:  # the session has been closed, or its server has gone
      pass


def _place(error):
  """Where an error was raised, such as "data.py:17"."""
  frame = traceback.extract_tb(error.__traceback__)[-1]
  return "%s:%d" % (frame.filename, frame.lineno)


def _maker(generator_fn, shard):
  """A callable that returns an iterator over this worker's elements, of all epochs."""
  if not callable(generator_fn):
    raise TypeError("generator_fn must be callable, such as a generator function; got %r" % (
      generator_fn,))
  takes = len([one for one in inspect.signature(generator_fn).parameters.values()
               if one.default is one.empty and one.kind in (
                 one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)])
  if takes not in (0, 2):
    raise TypeError("generator_fn must take no parameter, or two: a worker's index and the number "
                    "of workers; it takes %d" % takes)
  share = shard or shard_lib.Shard(epochs=1)
  if share.is_dynamic:
    raise shard_lib.ShardError("--shard=dynamic hands out files and blocks of tf.data alone, and "
                               "a generator's elements are divided: use --shard=records")
  index, count = share.index, share.count
  if share.policy == shard_lib.NONE or share.divided == shard_lib.FILES and not takes:
    index, count = 0, 1
  elif share.mode == "train":
    share.divided = share.policy or shard_lib.RECORDS
  epochs = share.epochs if share.mode == "train" else 1

  def make():
    for _ in itertools.count() if epochs is None else range(epochs):
      none = True
      for number, element in enumerate(generator_fn(index, count) if takes else generator_fn()):
        if takes or number % count == index:
          none = False
          yield element
      if none and epochs is None:  # else it would be asked for ever
        raise ValueError("the generator has yielded nothing for worker %d of %d" % (index, count))

  return make


def _at_least_one(name, value):
  if isinstance(value, bool) or not isinstance(value, int) or value < 1:
    raise ValueError("%s must be an integer of at least 1, got %r" % (name, value))
