"""Queues that lose nothing: drop-ins for TensorFlow's four kinds.

Each is TensorFlow's class with the same arguments and the same methods that build the same
operations. What is different, and what is there beside them:

1. A queue with a shared name lives on a ps and in the job's container (placing.py), so that all
   workers share it. What another client made under the name is compared with it: class, capacity,
   dtypes, shapes and component names.
2. `get` and `put` (waiting.py) wait in Python, as those of Python's `queue` do: after a timeout
   every element is in the queue or in the caller's hands.
3. `try_dequeue_many` and `try_enqueue_many` build operations that never block.
4. `close` leaves a note of why, so that consumers can tell the end from a cancellation;
   `drain` and `reopen`.

TensorFlow's own operations stay as they are: a `dequeue_many` that is cancelled in the middle loses
what it has taken. Prefer ours wherever something may time out.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.state import guard, placing, queue_elements, queue_steps, waiting


class QueueSpec(NamedTuple):
  """What two clients of one queue must agree on."""

  kind: str  # the class: "FIFOQueue"
  capacity: int  # elements; below 0: no limit
  min_after_dequeue: int  # elements that stay until it is closed; 0 but for RandomShuffleQueue


class _LosslessQueue(guard.Guarded, waiting.WaitingQueue):
  """What the four kinds share. Stands before TensorFlow's class among the bases."""

  def _make(self, make, kind, capacity, min_after_dequeue, shared_name, device, container):
    """Has TensorFlow's constructor make the queue at its place, and builds our operations."""
    if isinstance(capacity, bool) or int(capacity) != capacity or capacity == 0:
      raise ValueError(
        "capacity of %s must be a number of elements above 0, or below 0 for no limit, got %r: "
        "nothing would ever fit" % (_say(kind, shared_name), capacity))
    if capacity > 0 and min_after_dequeue >= capacity:
      raise ValueError("min_after_dequeue of %s must be below its capacity of %d, got %d" % (
        _say(kind, shared_name), capacity, min_after_dequeue))
    with placing.shared_placement(shared_name or "", device, container):
      make()
    self.spec = QueueSpec(kind, int(capacity), int(min_after_dequeue))
    self._single = queue_elements.single(self)
    self._guard = guard.Guard(
      self.queue_ref.op, guard.QUEUE_KIND, shared_name or "", self._describe())
    self._steps = queue_steps.build(self, self._guard)
    with tf.control_dependencies(None):
      self._announced = [self._guard.announce()] if shared_name else []

  def _describe(self):
    return dict(
      kind=self.spec.kind, capacity=self.spec.capacity,
      min_after_dequeue=self.spec.min_after_dequeue,
      dtypes=[tf.as_dtype(dtype).name for dtype in self.dtypes],
      shapes=[None if shape.ndims is None else shape.as_list() for shape in self.shapes],
      names=list(self.names) if self.names else None)

  def enqueue(self, vals, name=None):
    """Builds TensorFlow's operation. Like all of these, it also tells resets of the queue."""
    with tf.control_dependencies(self._announced):
      return super().enqueue(vals, name)

  def enqueue_many(self, vals, name=None):
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._announced):
      return super().enqueue_many(vals, name)

  def dequeue(self, name=None):
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._announced):
      return super().dequeue(name)

  def dequeue_many(self, n, name=None):
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._announced):
      return super().dequeue_many(n, name)

  def dequeue_up_to(self, n, name=None):
    """Builds TensorFlow's operation."""
    with tf.control_dependencies(self._announced):
      return super().dequeue_up_to(n, name)

  def close(self, cancel_pending_enqueues=False, name=None):
    """Builds the operation that closes the queue, like TensorFlow's; it leaves a note of why."""
    with tf.control_dependencies(
        queue_steps.note(self._guard, queue_steps.CANCELLED if cancel_pending_enqueues
          else queue_steps.ENDED)):
      return super().close(cancel_pending_enqueues, name)

  def try_dequeue_many(self, n, up_to=False, name=None) -> queue_steps.Taken:
    """Builds an operation that takes elements if they are there, and never blocks.

    Args:
      n: how many; an int or a scalar int32.
      up_to: whether fewer will do; else it takes n or none.
      name: of the operation.

    Returns:
      A `queue_steps.Taken`. Its components have the shape `[taken, ...]`.

    Raises:
      ValueError: n below 1, or components whose shapes are not known.
      tf.errors.InvalidArgumentError: when run, "container ... was reset"; the queue stays as it is.
    """
    with tf.name_scope(name, "%s_try_dequeue_many" % self._guard.name_in_graph):
      return queue_steps.take_many(self, self._guard, n, up_to)

  def try_enqueue_many(self, vals, up_to=False, name=None) -> queue_steps.Put:
    """Builds an operation that puts elements in if there is room, and never blocks.

    Args:
      vals: as for `enqueue_many`.
      up_to: whether it may put in only the first of them; else it puts in all or none.
      name: of the operation.

    Returns:
      A `queue_steps.Put`.

    Raises:
      tf.errors.InvalidArgumentError: when run, "container ... was reset".
    """
    with tf.name_scope(name, "%s_try_enqueue_many" % self._guard.name_in_graph):
      return queue_steps.put_many(self, self._guard, vals, up_to)


def _say(kind, shared_name):
  return "%s %r" % (kind, shared_name) if shared_name else kind


class FIFOQueue(_LosslessQueue, tf.queue.FIFOQueue):
  """A `tf.queue.FIFOQueue` whose elements are not lost."""

  def __init__(self, capacity, dtypes, shapes=None, names=None, shared_name=None,
               name="fifo_queue", *, device=None, container=None):
    """Creates the queue, like TensorFlow's; `device` and `container` are as for all kinds here.

    Args:
      capacity: elements; below 0: no limit.
      dtypes: of the components.
      shapes: of the components, or None where they are not known.
      names: of the components; `put` and `get` then take and return dicts.
      shared_name: the name under which others use the queue.
      name: of the operation.
      device: where it lives, such as "/job:ps/task:1"; see placing.py.
      container: its container; see placing.py.

    Raises:
      ValueError: a capacity of 0, an illegal container.
    """
    self._make(
      lambda: tf.queue.FIFOQueue.__init__(
        self, capacity, dtypes, shapes, names, shared_name, name),
      "FIFOQueue", capacity, 0, shared_name, device, container)


class PaddingFIFOQueue(_LosslessQueue, tf.queue.PaddingFIFOQueue):
  """A `tf.queue.PaddingFIFOQueue` whose elements are not lost."""

  def __init__(self, capacity, dtypes, shapes, names=None, shared_name=None,
               name="padding_fifo_queue", *, device=None, container=None):
    """Creates the queue, like TensorFlow's; what comes after `name` is as for `FIFOQueue`."""
    self._make(
      lambda: tf.queue.PaddingFIFOQueue.__init__(
        self, capacity, dtypes, shapes, names, shared_name, name),
      "PaddingFIFOQueue", capacity, 0, shared_name, device, container)


class RandomShuffleQueue(_LosslessQueue, tf.queue.RandomShuffleQueue):
  """A `tf.queue.RandomShuffleQueue` whose elements are not lost."""

  def __init__(self, capacity, min_after_dequeue, dtypes, shapes=None, names=None, seed=None,
               shared_name=None, name="random_shuffle_queue", *, device=None, container=None):
    """Creates the queue, like TensorFlow's; what comes after `name` is as for `FIFOQueue`."""
    self._make(
      lambda: tf.queue.RandomShuffleQueue.__init__(
        self, capacity, min_after_dequeue, dtypes, shapes, names, seed, shared_name, name),
      "RandomShuffleQueue", capacity, min_after_dequeue, shared_name, device, container)


class PriorityQueue(_LosslessQueue, tf.queue.PriorityQueue):
  """A `tf.queue.PriorityQueue` whose elements are not lost: the lowest priority comes first."""

  def __init__(self, capacity, types, shapes=None, names=None, shared_name=None,
               name="priority_queue", *, device=None, container=None):
    """Creates the queue, like TensorFlow's; what comes after `name` is as for `FIFOQueue`.

    The first component of each element is its priority, an int64 scalar; `types` and `shapes` are
    those of the others.
    """
    self._make(
      lambda: tf.queue.PriorityQueue.__init__(
        self, capacity, types, shapes, names, shared_name, name),
      "PriorityQueue", capacity, 0, shared_name, device, container)
