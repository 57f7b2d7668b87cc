"""Queues that lose no element: drop-ins for TensorFlow's four kinds.

Each queue has the arguments and methods of TensorFlow's class, which build the same operations. The
following behavior differs or is new:

1. A queue with a shared name lives on a ps and in the job's container (pinning.py), so all workers
   share it. The first use in a session compares class, capacity, dtypes, shapes and component names
   with those of other clients.
2. `get` and `put` wait in Python, like the methods of Python's `queue`. No operation on the server
   waits, so no operation is cancelled while it holds elements. A call asks the server every
   `poll_secs` until it times out. After a timeout each element is in the queue or with the caller.
   Only if the server itself does not answer is the place of the elements unknown, as
   `QueueUnanswered` says. Waiting callers have no order: a caller that needs many elements may wait
   while others take few.
3. `try_dequeue_many` and `try_enqueue_many` build operations that never block.
4. `close` notes its reason, so consumers distinguish an end from a cancellation. `drain` takes all
   elements, and `reopen` replaces the queue by a new queue.

TensorFlow's own operations stay as they are: a `dequeue_many` that is cancelled half-way loses the
elements that it took. Use `get` and `put` where a call may time out.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Union

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, DropIn
from tf1ps.state import guard, pinning, queue_call, queue_errors, queue_steps


class TakenElements(NamedTuple):
  """The result of a try_dequeue_many."""

  components: object  # as dequeue_many returns them: tensor, list or dict; each `[count, ...]`
  count: tf.Tensor  # int32 scalar: the number of elements that it took
  present: tf.Tensor  # int32 scalar: the number of elements that it could have taken
  closed: tf.Tensor  # bool scalar: whether the queue is closed


class PutElements(NamedTuple):
  """The result of a try_enqueue_many."""

  count: tf.Tensor  # int32 scalar: the number of elements that it enqueued, from the first on
  present: tf.Tensor  # int32 scalar: the number of elements in the queue before that
  closed: tf.Tensor  # bool scalar: whether the queue is closed


# For type checkers: each of the four classes has a class of TensorFlow's behind this base.
_TensorFlowsQueue: Any = object


class _LosslessQueue(guard.Guarded, _TensorFlowsQueue, metaclass=DropIn):
  """The common base of the four kinds, which precedes TensorFlow's class among the bases.

  Attributes:
    spec: the `QueueSpec`.
    poll_secs: seconds between two requests of a waiting caller; each costs the ps 0.5 ms of a core.
  """

  poll_secs = TIMING.queue_poll_interval

  def __new__(cls, *args: Any, **kwargs: Any) -> Any:
    """Makes the queue; under eager execution, as in `tf.py_function`, TensorFlow's queue."""
    if tf.executing_eagerly():
      return cls._replaces(*args, **kwargs)
    return super().__new__(cls)

  def _make(self, make, kind, capacity, min_after_dequeue, shared_name, device, container):
    """Calls TensorFlow's constructor at the queue's place, and builds the steps of tf1ps."""
    title = "%s %r" % (kind, shared_name) if shared_name else kind
    if isinstance(capacity, bool) or int(capacity) != capacity or capacity == 0:
      raise ValueError(
        "capacity of %s must be a number of elements above 0, or below 0 for no limit, got %r" % (
          title, capacity))
    if capacity > 0 and min_after_dequeue >= capacity:
      raise ValueError("min_after_dequeue of %s must be below its capacity of %d, got %d" % (
        title, capacity, min_after_dequeue))
    with pinning.shared_placement(shared_name or "", device, container):
      make()
    self.spec = queue_steps.QueueSpec(kind, int(capacity), int(min_after_dequeue))
    self._single = _single(self)
    self._guard, self._steps = queue_steps.build(self, guard.Label.of(
      self.queue_ref.op, guard.QUEUE_KIND, shared_name or "", self._describe()))

  def _describe(self):
    return dict(
      kind=self.spec.kind, capacity=self.spec.capacity,
      min_after_dequeue=self.spec.min_after_dequeue,
      dtypes=[tf.as_dtype(dtype).name for dtype in self.dtypes],
      shapes=[None if shape.ndims is None else shape.as_list() for shape in self.shapes],
      names=list(self.names) if self.names else None)

  # TensorFlow's operations. Each also registers the queue, so that a reset closes it.

  def enqueue(self, vals: Any, name: Optional[str] = None) -> tf.Operation:
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._steps.announced):
      return super().enqueue(vals, name)

  def enqueue_many(self, vals: Any, name: Optional[str] = None) -> tf.Operation:
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._steps.announced):
      return super().enqueue_many(vals, name)

  def dequeue(self, name: Optional[str] = None) -> Any:
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._steps.announced):
      return super().dequeue(name)

  def dequeue_many(self, n: Union[int, tf.Tensor], name: Optional[str] = None) -> Any:
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._steps.announced):
      return super().dequeue_many(n, name)

  def dequeue_up_to(self, n: Union[int, tf.Tensor], name: Optional[str] = None) -> Any:
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._steps.announced):
      return super().dequeue_up_to(n, name)

  def close(self, cancel_pending_enqueues: bool = False,
            name: Optional[str] = None) -> tf.Operation:
    """Builds TensorFlow's operation; it also notes the reason beside the queue."""
    reason = queue_steps.CANCELLED if cancel_pending_enqueues else queue_steps.ENDED
    with tf.control_dependencies(queue_steps.write_state(self._guard, reason)):
      return super().close(cancel_pending_enqueues, name)

  # Operations that never block.

  def try_dequeue_many(self, n: Union[int, tf.Tensor], up_to: bool = False,
                       name: Optional[str] = None) -> TakenElements:
    """Builds an operation that takes elements if they are there, and never blocks.

    Args:
      n: the number of elements; an int or an int32 scalar.
      up_to: whether fewer elements are enough; else the operation takes n elements or none.
      name: the name of the operation.

    Raises:
      ValueError: n is below 1, or shapes of components are not known.
      tf.errors.InvalidArgumentError: when run, "container ... was reset"; no element is taken.
    """
    if not queue_steps.has_shapes(self):
      raise ValueError("try_dequeue_many needs a queue whose shapes are known: give it shapes")
    known = tf.get_static_value(n) if tf.is_tensor(n) else n
    if known is not None and (isinstance(known, bool) or known < 1):
      raise ValueError("n must be a number of elements above 0, got %r" % (n,))
    with tf.name_scope(name, "%s_try_dequeue_many" % self._guard.name_in_graph):
      *components, report = queue_steps.take(
        self, self._guard, tf.maximum(tf.convert_to_tensor(n, tf.int32), 0), up_to)
      for component, shape in zip(components, self.shapes):
        component.set_shape(queue_steps.batch_of(shape))
      return TakenElements(
        self._shaped(components), report[0], report[1], tf.cast(report[2], tf.bool))

  def try_enqueue_many(self, vals: Any, up_to: bool = False,
                       name: Optional[str] = None) -> PutElements:
    """Builds an operation that puts elements in if there is room, and never blocks.

    Args:
      vals: as for `enqueue_many`.
      up_to: whether it may enqueue only the first elements; else it enqueues all or none.
      name: the name of the operation.

    Raises:
      tf.errors.InvalidArgumentError: when run, "container ... was reset".
    """
    with tf.name_scope(name, "%s_try_enqueue_many" % self._guard.name_in_graph):
      vals = [tf.convert_to_tensor(value, dtype)
              for value, dtype in zip(self._listed(vals, True), self.dtypes)]
      for value, shape in zip(vals, self.shapes):
        value.shape.with_rank_at_least(1)[1:].assert_is_compatible_with(shape)
      report, = queue_steps.put(self, self._guard, vals, up_to)
      return PutElements(report[0], report[1], tf.cast(report[2], tf.bool))

  # Calls that wait in Python.

  def get(self, session: tf.Session, n: Optional[int] = None, up_to: bool = False,
          timeout: Optional[float] = None) -> Any:
    """Takes elements out of the queue, like Python's `queue.Queue.get`.

    Args:
      session: a session of the queue's graph; its hooks do not run.
      n: the number of elements; None: a single element without a batch dimension.
      up_to: whether fewer elements, but at least one element, are enough.
      timeout: seconds to wait; 0: the call asks the server once; None: no limit.

    Returns:
      The components as numpy values, `[n, ...]` each, in the form of TensorFlow's dequeue: a dict
      if they have names, a single value, or a list.

    Raises:
      ValueError: the queue can never hold n elements, or it has no shapes.
      QueueEmpty: the call timed out; nothing was taken.
      QueueUnanswered: the ps did not answer within the timeout; elements may have been taken.
      QueueEnded, QueueCancelled: the queue is closed and has fewer elements.
      QueueReset, QueueMismatch: see queue_errors.py.
    """
    wanted = self._check_n(n)
    call = queue_call.QueueCall(
      self, session, "get(%s)" % ("" if n is None else n), wanted, timeout)
    feed = {self._steps.n: wanted}
    if self._steps.quick_take and not up_to:
      components = call.run(self._steps.quick_take, feed)
      if len(components[0]):
        return self._as_taken(components, n)
    feed[self._steps.up_to] = up_to
    while True:
      *components, (count, present, closed) = call.run(self._steps.take, feed)
      if count:
        return self._as_taken(components, n)
      call.pause(present, closed, queue_errors.QueueEmpty)

  def put(self, session: tf.Session, values: Any, timeout: Optional[float] = None,
          many: bool = False) -> None:
    """Puts an element, or a whole batch, into the queue.

    Args:
      session: a session of the queue's graph; its hooks do not run.
      values: the components of one element: a dict if they have names, a single value, or a list.
      timeout: seconds to wait for room; 0: the call asks the server once; None: no limit.
      many: whether each component is a batch, `[n, ...]`.

    Raises:
      ValueError: the queue can never hold the batch, or components do not fit the queue: their
        shapes differ, or the queue's type cannot hold their numbers.
      QueueFull: the call timed out; nothing was enqueued.
      QueueUnanswered: the ps did not answer within the timeout; the elements may be enqueued.
      QueueEnded, QueueCancelled: the queue is closed.
      QueueReset, QueueMismatch: see queue_errors.py.
    """
    vals = self._as_batch(values, many)
    count = len(vals[0])
    if not count:
      return
    call = queue_call.QueueCall(self, session, "put(%s)" % (count if many else ""), count, timeout)
    feed = dict(zip(self._steps.vals, vals))
    feed[self._steps.n] = count
    if call.run_quick(self._steps.quick_put, feed):
      return
    while True:
      (done, present, closed), = call.run(self._steps.put, feed)
      if done:
        return
      call.pause(present, closed, queue_errors.QueueFull)

  def drain(self, session: tf.Session) -> List[Any]:
    """Takes all elements that `get` can take; returns a list of elements as `get` returns them.

    In an open RandomShuffleQueue the last `min_after_dequeue` elements stay, as in TensorFlow.
    """
    elements = []
    while True:
      try:
        elements.append(self.get(session, timeout=0))
      except (queue_errors.QueueEmpty, queue_errors.QueueEnded):
        return elements

  def reopen(self, session: tf.Session) -> None:
    """Replaces the queue by a new queue, empty and open; the elements are lost.

    TensorFlow's own operations that wait on the old queue are cancelled. Other clients use the new
    queue. After a reset of the container, the session uses the queue that is there now.

    Raises:
      RuntimeError: on TensorFlow 1.15, a session without a server creates a queue only once.
    """
    call = queue_call.QueueCall(self, session, "reopen()", 0, None)
    try:
      call.run(self._steps.discard)
    except queue_errors.QueueReset:
      call.run(self._steps.forget)
    call.recreate()

  # Elements: from the form of the caller to components and back.

  def _check_n(self, n):
    if n is None:
      return 1
    if not queue_steps.has_shapes(self):
      raise ValueError("get(n=%r) needs a queue whose shapes are known: give it shapes" % (n,))
    if isinstance(n, bool) or int(n) != n or n < 1:
      raise ValueError("n must be a number of elements above 0, got %r" % (n,))
    most = self.spec.capacity
    if 0 < most < n:
      raise ValueError("get(%d) from a queue with a capacity of %d would never end" % (n, most))
    return int(n)

  def _as_taken(self, components, n):
    if n is None and queue_steps.has_shapes(self):
      components = [component[0] for component in components]
    return self._shaped(components)

  def _shaped(self, components):
    """Returns components in the form of TensorFlow's dequeue: a dict, a single value, or a list."""
    if self.names:
      return dict(zip(self.names, components))
    return components[0] if len(components) == 1 else list(components)

  def _listed(self, values, many: bool) -> list:
    """Returns the components of a caller's value: a dict if they have names, a list, or one value.

    The rank decides whether a list with one value is itself the only component, or contains the
    component. If the queue's rank is not known, the list contains the component, as in TensorFlow.
    """
    if self.names:
      if not isinstance(values, dict) or sorted(values) != sorted(self.names):
        raise ValueError("queue %s takes a dict with %s, got %r" % (
          self.name, ", ".join(self.names), values))
      return [values[name] for name in self.names]
    if len(self.dtypes) == 1:
      is_list = isinstance(values, (list, tuple)) and len(values) == 1
      rank = self.shapes[0].ndims
      if not is_list or (rank is not None and _rank(values) == rank + many):
        return [values]
    if not isinstance(values, (list, tuple)) or len(values) != len(self.dtypes):
      raise ValueError("queue %s has %d components, got %r" % (self.name, len(self.dtypes), values))
    return list(values)

  def _as_batch(self, values, many: bool) -> List[np.ndarray]:
    """Returns a caller's components, `[n, ...]` each; raises ValueError if they do not fit."""
    if many and type(values) is np.ndarray and values.ndim:
      is_fit = self._single == (values.dtype, values.shape[1:])
      if is_fit and (len(values) <= self.spec.capacity or self.spec.capacity < 0):
        return [values]  # the common case, which takes a tenth of the time of the general case
    vals = [_as_array(value, dtype, self.name)
            for value, dtype in zip(self._listed(values, many), self.dtypes)]
    if not many:
      vals = [value[np.newaxis] for value in vals]
    counts = {len(value) if value.ndim else -1 for value in vals}
    if len(counts) != 1 or -1 in counts:
      raise ValueError("the components of a batch have different first dimensions: %s" % (
        ", ".join(str(value.shape) for value in vals)))
    for value, shape in zip(vals, self.shapes):
      if not shape.is_compatible_with(value.shape[1:]):
        raise ValueError("queue %s takes elements of shape %s, got %s" % (
          self.name, shape, value.shape[1:]))
    count, = counts
    if 0 < self.spec.capacity < count:
      raise ValueError("put(%d) into a queue with a capacity of %d would never end" % (
        count, self.spec.capacity))
    return vals


def _single(queue):
  """Returns (numpy's dtype, shape) of the only component, if it has no name; else None."""
  if queue.names or len(queue.dtypes) != 1 or not queue.shapes[0].is_fully_defined():
    return None
  return np.dtype(queue.dtypes[0].as_numpy_dtype), tuple(queue.shapes[0].as_list())


def _as_array(value, dtype: tf.DType, queue: str) -> np.ndarray:
  """Returns a component in its type; raises ValueError for numbers that the type cannot take.

  Numbers of another type of the same kind are converted, as in a feed, for example float64 to
  float32. An integer must keep its value.
  """
  kind = np.dtype(dtype.as_numpy_dtype)
  given = np.asarray(value)
  if given.dtype == kind or not given.size or given.dtype.kind not in "biufc" or \
      kind.kind not in "biufc":
    return np.asarray(value, kind)
  array = given.astype(kind)
  if given.dtype.kind in "iu" and kind.kind in "iu":
    fits = np.array_equal(array, given)
  else:
    fits = np.can_cast(given.dtype, kind, "same_kind")
  if not fits:
    raise ValueError("queue %s takes %s, which cannot hold %r: convert it before, or give the "
                     "queue another dtype" % (queue, dtype.name, value))
  return array


def _rank(value) -> int:
  """Returns the number of dimensions of a value that may be a list, even a list of tensors."""
  if isinstance(value, (list, tuple)):
    return 1 + (_rank(value[0]) if value else 0)
  return tf.TensorShape(getattr(value, "shape", [])).ndims or 0


class FIFOQueue(_LosslessQueue, tf.queue.FIFOQueue):
  """A `tf.queue.FIFOQueue` that loses no element."""

  _replaces = tf.queue.FIFOQueue

  def __init__(self, capacity: int, dtypes: Union[tf.DType, Sequence[tf.DType]],
               shapes: Union[tf.TensorShape, Sequence[Any], None] = None,
               names: Optional[Sequence[str]] = None, shared_name: Optional[str] = None,
               name: str = "fifo_queue", *,
               device: Optional[str] = None, container: Optional[str] = None):
    """Creates the queue. The other kinds take `device` and `container`, too.

    Args:
      capacity: the number of elements; below 0: no limit.
      dtypes: the types of the components.
      shapes: the shapes of the components, or None if they are not known.
      names: the names of the components; `put` and `get` then take and return dicts.
      shared_name: the name under which other processes use the queue.
      name: the name of the operation.
      device: the queue's device, such as "/job:ps/task:1". None: see pinning.py.
      container: the queue's container. None: see pinning.py.

    Raises:
      ValueError: the capacity is 0, or the container is illegal.
    """
    self._make(
      lambda: tf.queue.FIFOQueue.__init__(
        self, capacity, dtypes, shapes, names, shared_name, name),
      "FIFOQueue", capacity, 0, shared_name, device, container)


class PaddingFIFOQueue(_LosslessQueue, tf.queue.PaddingFIFOQueue):
  """A `tf.queue.PaddingFIFOQueue` that loses no element."""

  _replaces = tf.queue.PaddingFIFOQueue

  def __init__(self, capacity: int, dtypes: Union[tf.DType, Sequence[tf.DType]],
               shapes: Union[tf.TensorShape, Sequence[Any]],
               names: Optional[Sequence[str]] = None, shared_name: Optional[str] = None,
               name: str = "padding_fifo_queue", *,
               device: Optional[str] = None, container: Optional[str] = None):
    """Creates the queue like TensorFlow; see `FIFOQueue` for `device` and `container`."""
    self._make(
      lambda: tf.queue.PaddingFIFOQueue.__init__(
        self, capacity, dtypes, shapes, names, shared_name, name),
      "PaddingFIFOQueue", capacity, 0, shared_name, device, container)


class RandomShuffleQueue(_LosslessQueue, tf.queue.RandomShuffleQueue):
  """A `tf.queue.RandomShuffleQueue` that loses no element."""

  _replaces = tf.queue.RandomShuffleQueue

  def __init__(self, capacity: int, min_after_dequeue: int,
               dtypes: Union[tf.DType, Sequence[tf.DType]],
               shapes: Union[tf.TensorShape, Sequence[Any], None] = None,
               names: Optional[Sequence[str]] = None, seed: Optional[int] = None,
               shared_name: Optional[str] = None,
               name: str = "random_shuffle_queue", *,
               device: Optional[str] = None, container: Optional[str] = None):
    """Creates the queue like TensorFlow; see `FIFOQueue` for `device` and `container`."""
    self._make(
      lambda: tf.queue.RandomShuffleQueue.__init__(
        self, capacity, min_after_dequeue, dtypes, shapes, names, seed, shared_name, name),
      "RandomShuffleQueue", capacity, min_after_dequeue, shared_name, device, container)


class PriorityQueue(_LosslessQueue, tf.queue.PriorityQueue):
  """A `tf.queue.PriorityQueue` that loses no element: the lowest priority comes first."""

  _replaces = tf.queue.PriorityQueue

  def __init__(self, capacity: int, types: Union[tf.DType, Sequence[tf.DType]],
               shapes: Union[tf.TensorShape, Sequence[Any], None] = None,
               names: Optional[Sequence[str]] = None, shared_name: Optional[str] = None,
               name: str = "priority_queue", *,
               device: Optional[str] = None, container: Optional[str] = None):
    """Creates the queue like TensorFlow; see `FIFOQueue` for `device` and `container`.

    The first component of each element is its priority, an int64 scalar; `types` and `shapes`
    describe the other components.
    """
    self._make(
      lambda: tf.queue.PriorityQueue.__init__(
        self, capacity, types, shapes, names, shared_name, name),
      "PriorityQueue", capacity, 0, shared_name, device, container)
