"""Batches from Python: a thread takes elements from a generator while training computes.

1. `feed` builds a short queue of whole batches on the worker, and adds a queue runner of its own to
   the graph. Any code that starts the graph's queue runners starts it; monitored sessions do.
2. The runner's thread calls the generator function, once per session and epoch, checks, stacks and
   pads the elements to batches, and enqueues them. Feeding by hand does that between two steps.
3. When the generator ends, the queue is closed. The consumer gets the batches in the queue and then
   an OutOfRangeError, or the exception that the generator raised.
4. When the session ends, the thread's enqueue is cancelled and its generator is closed. A generator
   that is waiting does not notice, and is left behind in a daemon thread.

A session that replaces a failed one starts a new generator.
"""

from __future__ import annotations

import inspect
import itertools
import threading
import traceback
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, retry_refused_run
from tf1ps.pipeline import on_worker, queue_runners
from tf1ps.pipeline import shard as shard_lib

# If a generator raised these, they would look like the end of the data or like a lost server.
_NOT_ITS_OWN = (tf.errors.OutOfRangeError, tf.errors.CancelledError, tf.errors.AbortedError,
                tf.errors.UnavailableError)


def feed(generator_fn: Callable[..., Iterable], dtypes: Any, shapes: Any = None,
         batch_size: Optional[int] = None, capacity: int = 4,
         shard: Optional[shard_lib.Shard] = None, drop_remainder: bool = False, *,
         name: str = "feed", worker_device: Optional[str] = None) -> Any:
  """Makes batches of the elements that a Python generator yields, in the structure of `dtypes`.

  Args:
    generator_fn: returns an iterable, such as a generator function. If it takes two parameters, it
      is called with this worker's index and the number of workers, and yields this worker's part.
    dtypes: the type, or any structure of types, of an element.
    shapes: the same structure of shapes of an element. A dimension may be None; then the elements
      of a batch are padded with zeros to the largest. None: unknown, if batch_size is None.
    batch_size: elements per batch. None: the generator yields whole batches.
    capacity: the number of batches that wait in the queue.
    shard: this worker's share. In training the generator runs once per epoch, and if it takes no
      parameters only every count-th element is used. None: all elements, once.
    drop_remainder: whether a last batch of fewer elements is dropped.
    name: the name of the operations.
    worker_device: as for `on_worker.scope`.

  Raises:
    TypeError, ValueError: an argument has a wrong value.
  """
  shard_lib.check_at_least("capacity", capacity, 1)
  if batch_size is not None:
    shard_lib.check_at_least("batch_size", batch_size, 1)
  parts = _components(dtypes, shapes, batch_size is not None)
  make = _maker(generator_fn, shard)
  is_full = drop_remainder or (shard is not None and shard.epochs is None and shard.mode == "train")
  first = [] if batch_size is None else [batch_size if is_full else None]
  with on_worker.scope(worker_device), tf.name_scope(name):
    inputs = [tf.placeholder(one.dtype, tf.TensorShape(first).concatenate(one.shape))
              for one in parts]
    queue = tf.FIFOQueue(capacity, [one.dtype for one in parts], name="batches")
    enqueue = queue.enqueue(inputs)
    taken = queue.dequeue(name="batch")
    runner = FeedingRunner(queue, enqueue, inputs, lambda: _batches(
      make(), dtypes, parts, batch_size, drop_remainder))
  tf.train.add_queue_runner(runner)
  found = taken if isinstance(taken, (list, tuple)) else [taken]
  for tensor, fed in zip(found, inputs):
    tensor.set_shape(fed.shape)
  return tf.nest.pack_sequence_as(dtypes, found)


class FeedingRunner(queue_runners.StartableRunner):
  """A queue runner whose thread takes batches from a Python iterable."""

  def __init__(self, queue, enqueue, inputs, make: Callable[[], Iterable]):
    """Creates the runner of `enqueue`, which feeds `inputs` with the lists that `make()` yields."""
    super().__init__(queue, [enqueue])
    self._inputs, self._make = inputs, make
    self._feeders = []

  def create_threads(self, sess, coord=None, daemon=False, start=False):
    """Like `tf.train.QueueRunner`'s; the thread ends at most 0.3 s after a stop."""
    self._feeders = [one for one in self._feeders if not one.is_over]
    if any(one.session is sess for one in self._feeders):
      return []
    self.was_started = True
    feeder = _Feeder(self, sess, coord)
    self._feeders.append(feeder)
    thread = queue_runners.RunnerThread(
      False, target=feeder.watch, daemon=daemon or None,
      name="tf1ps: feeding %s" % self.queue.name)
    if coord is not None:
      coord.register_thread(thread)
    if start:
      thread.start()
    return [thread]


class _Feeder:
  """The feeding of one session: a thread that may be left behind, and a thread that ends it."""

  def __init__(self, runner, session, coord):
    self.session = session
    self.is_over = False
    self._runner, self._coord = runner, coord
    self._failures = queue_runners.connect(session, coord)
    kind = queue_runners.class_of(session)
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
    canceller = threading.Thread(
      target=queue_runners.run_quietly, args=(self._cancel,), daemon=True,
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
        self._failures.record(error, "%s (%s)" % (self._runner.queue.name, _line_of(error)))
    if not self.is_over:
      queue_runners.run_quietly(self._close)
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


def _line_of(error):
  """Returns the place where an error was raised, such as "data.py:17"."""
  frame = traceback.extract_tb(error.__traceback__)[-1]
  return "%s:%d" % (frame.filename, frame.lineno)


def _maker(generator_fn, shard):
  """Returns a callable that makes an iterator over this worker's elements of all epochs."""
  if not callable(generator_fn):
    raise TypeError("generator_fn must be callable, such as a generator function; got %r" % (
      generator_fn,))
  takes = len([one for one in inspect.signature(generator_fn).parameters.values()
               if one.default is one.empty and one.kind in (
                 one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)])
  if takes not in (0, 2):
    raise TypeError("generator_fn must take no parameter, or two, a worker's index and the number "
                    "of workers; it takes %d" % takes)
  share = shard or shard_lib.Shard(epochs=1)
  if share.is_dynamic:
    raise shard_lib.ShardError("--shard=dynamic works only with tf.data, and this input is a "
                               "generator. Use --shard=records.")
  index, count = share.index, share.count
  if share.policy == shard_lib.NONE or share.divided == shard_lib.FILES and not takes:
    index, count = 0, 1
  elif share.mode == "train":
    share.divided = share.policy or shard_lib.RECORDS
  epochs = share.epochs if share.mode == "train" else 1

  def make():
    for _ in itertools.count() if epochs is None else range(epochs):
      is_empty = True
      for number, element in enumerate(generator_fn(index, count) if takes else generator_fn()):
        if takes or number % count == index:
          is_empty = False
          yield element
      if is_empty and epochs is None:  # else it would be called forever
        raise ValueError("the generator yielded no element for worker %d of %d" % (index, count))

  return make


# Batches of Python values.


class _Component(NamedTuple):
  """One tensor of an element."""

  dtype: tf.DType
  shape: tf.TensorShape  # the rank is known where elements are stacked to batches


def _components(dtypes: Any, shapes: Any, stacks: bool) -> List[_Component]:
  """Returns the components of an element, in the order of `tf.nest.flatten`.

  `stacks` says whether elements are stacked to batches. Raises ValueError if the structures differ,
  or if a shape is needed and unknown.
  """
  types = [tf.as_dtype(one) for one in tf.nest.flatten(dtypes)]
  if shapes is None:
    found = [tf.TensorShape(None)] * len(types)
  else:
    found = [tf.TensorShape(one) for one in _leaves(dtypes, shapes, "shapes")]
  for shape in found:
    if stacks and shape.rank is None:
      raise ValueError("to make batches of elements, the number of dimensions of each shape must "
                       "be known; got shapes %r" % (shapes,))
  return [_Component(*one) for one in zip(types, found)]


def _leaves(structure: Any, value: Any, what: str) -> list:
  """Returns the parts of a value at the leaves of a structure of dicts, tuples and lists.

  `what` names the value in the ValueError of another structure.
  """
  if isinstance(structure, dict):
    if not isinstance(value, dict) or set(value) != set(structure):
      raise ValueError("%s must be a dict of %s, got %r" % (what, sorted(structure), value))
    return [leaf for key in sorted(structure) for leaf in _leaves(structure[key], value[key], what)]
  if isinstance(structure, (list, tuple)):
    if not isinstance(value, (list, tuple)) or len(value) != len(structure):
      raise ValueError("%s must be a tuple of %d, got %r" % (what, len(structure), value))
    return [leaf for one, part in zip(structure, value) for leaf in _leaves(one, part, what)]
  return [value]


def _batches(elements: Iterable, dtypes: Any, parts: List[_Component], size: Optional[int],
             drop_remainder: bool) -> Iterator[List[np.ndarray]]:
  """Yields batches of elements as lists of arrays, one for each component in `parts`.

  Elements have the structure `dtypes`; without a `size` each of them is a batch. Raises ValueError
  for an element of another structure, type or shape.
  """
  waiting = []
  for number, element in enumerate(elements):
    what = "element %d of the generator" % number
    values = [_array(value, part, what)
              for value, part in zip(_leaves(dtypes, element, what), parts)]
    if size is None:
      yield values
      continue
    waiting.append(values)
    if len(waiting) == size:
      yield _stacked(waiting)
      waiting = []
  if waiting and not drop_remainder:
    yield _stacked(waiting)


def _array(value, part, what):
  kind = object if part.dtype == tf.string else part.dtype.as_numpy_dtype
  try:
    array = np.asarray(value)
    # A number is converted to another type of the same kind, as in a feed.
    if part.dtype != tf.string and not np.can_cast(array.dtype, kind, "same_kind"):
      raise TypeError("%s of %s" % (array.dtype, part.dtype.name))
    array = array.astype(kind, copy=False)
  except (TypeError, ValueError) as error:
    raise ValueError("%s must be %s, got %r (%s)" % (
      what, part.dtype.name, value, error)) from error
  if not part.shape.is_compatible_with(array.shape):
    raise ValueError("%s must have the shape %s, got %s: %r" % (
      what, part.shape, array.shape, value))
  return array


def _stacked(elements):
  return [_padded(arrays) for arrays in zip(*elements)]


def _padded(arrays):
  """Stacks arrays, padded at the end of each dimension with zeros, or empty strings."""
  shapes = {array.shape for array in arrays}
  if len(shapes) == 1:
    return np.stack(arrays)
  largest = np.max(list(shapes), axis=0)
  empty = b"" if arrays[0].dtype == object else 0
  found = np.full([len(arrays), *largest], empty, arrays[0].dtype)
  for number, array in enumerate(arrays):
    found[(number, *map(slice, array.shape))] = array
  return found
