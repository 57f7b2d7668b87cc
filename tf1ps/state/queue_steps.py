"""Steps on a queue that never block: each looks at the size and takes or puts what fits.

A `dequeue_many(4)` of TensorFlow takes the elements that are there and waits for more; if it is
cancelled meanwhile, it loses what it took. A step here reads the size first and runs TensorFlow's
operation only if that finds everything it needs. The guard (guard.py) keeps other steps out in
between, but not TensorFlow's own operations of other clients: after one of those, a step may wait
for the next element. So do not mix both on a queue whose elements must not be lost.
"""

from __future__ import annotations

from typing import List, NamedTuple

import tensorflow.compat.v1 as tf

ENDED, CANCELLED = "ended", "cancelled"  # why a queue was closed
_MANY = 2 ** 31 - 1  # elements; the capacity of a queue without a limit


class QueueSpec(NamedTuple):
  """What two clients of one queue must agree on."""

  kind: str  # the class: "FIFOQueue"
  capacity: int  # elements; below 0: no limit
  min_after_dequeue: int  # elements that stay until it is closed; 0 except for RandomShuffleQueue


class Steps(NamedTuple):
  """The steps that `get`, `put` and the other methods run.

  A report is int32 `[3]`: elements moved, elements that were present, whether it is closed.
  """

  n: tf.Tensor  # int32 scalar, to feed: how many elements
  up_to: tf.Tensor  # bool scalar, to feed: whether fewer are enough
  take: list  # components, then the report; a batch if the shapes are known, else one element
  vals: list  # to feed: one batch per component
  put: list  # the report
  look: list  # the report of no move; of all steps only this one may be a session's first
  quick_take: list  # the components of n elements or of none; [] if shapes are unknown
  quick_put: list  # int32 scalar: elements that were put in
  state: list  # string scalar: why the queue was closed
  register: tf.Tensor  # string scalar: the register's description of the name
  discard: list  # closes the queue and destroys it
  forget: tf.Operation  # makes the session accept the queue that is there now


def has_shapes(queue) -> bool:
  """Whether batches can be taken: TensorFlow needs known shapes, or known ranks to pad."""
  return all(shape.ndims is not None for shape in queue.shapes)


def batch_of(shape) -> tf.TensorShape:
  """The shape of a batch of components."""
  return tf.TensorShape([None]).concatenate(shape)


def build(queue, guard) -> Steps:
  """Builds the steps beside the queue."""
  with tf.control_dependencies(None), tf.name_scope("%s_steps" % guard.name_in_graph):
    n = tf.placeholder_with_default(tf.constant(1), [], "n")
    up_to = tf.placeholder_with_default(tf.constant(False), [], "up_to")
    vals = [tf.placeholder(dtype, batch_of(shape), "vals")
            for dtype, shape in zip(queue.dtypes, queue.shapes)]
    in_batches = has_shapes(queue)
    return Steps(
      n=n, up_to=up_to, vals=vals,
      take=take(queue, guard, n, up_to, False) if in_batches else _take_one(queue, guard),
      put=put(queue, guard, vals, False, False), look=_only_look(queue, guard),
      quick_take=_quick_take(queue, guard, n) if in_batches else [],
      quick_put=_quick_put(queue, guard, vals),
      state=guard.step(lambda: [guard.read_state()], may_be_first=False),
      register=guard.read_register(), discard=_discard(queue, guard), forget=guard.forget())


def take(queue, guard, n, up_to, may_be_first=True) -> list:
  """Builds a step that takes n elements, or up to n, if they are there.

  `n` is an int32 scalar, 0 or more; `up_to` a bool or a bool scalar; `may_be_first` see
  `Guard.step`. Returns the components, `[count, ...]` each, and the report.
  """
  def step():
    _, present, closed = _look(queue)
    enough = tf.logical_or(up_to, present >= n)
    count = tf.where_v2(enough, tf.minimum(present, n), 0)
    # With n=0 it returns an empty batch at once, also if the queue is closed.
    components = tf.raw_ops.QueueDequeueManyV2(
      handle=queue.queue_ref, n=count, component_types=queue.dtypes)
    return list(components) + [_report(count, present, closed)]

  return guard.step(step, may_be_first=may_be_first)


def put(queue, guard, vals, up_to: bool, may_be_first=True) -> list:
  """Builds a step that puts a batch in if there is room; returns [the report].

  `vals` has a tensor `[n, ...]` per component. `up_to` allows to put in only the first elements.
  """
  def step():
    size, _, closed = _look(queue)
    capacity = queue.spec.capacity
    room = capacity - size if capacity > 0 else tf.constant(_MANY)
    given = count = tf.shape(vals[0])[0]
    if up_to:
      count = tf.minimum(given, room)
    count = tf.where_v2(tf.logical_and(count <= room, tf.logical_not(closed)), count, 0)
    with tf.control_dependencies([_enqueue_first(queue, vals, count)]):
      return [_report(count, size, closed)]

  return guard.step(step, vals, may_be_first)


def write_state(guard, text: str) -> List[tf.Tensor]:
  """Builds a step that notes beside the queue why it is closed."""
  def write():
    with tf.control_dependencies([guard.write_state(text)]):
      return [tf.constant(True)]

  return guard.step(write)


def _look(queue):
  size = tf.raw_ops.QueueSizeV2(handle=queue.queue_ref)
  with tf.control_dependencies([size]):
    closed = tf.raw_ops.QueueIsClosedV2(handle=queue.queue_ref)
  least = queue.spec.min_after_dequeue
  present = tf.where_v2(closed, size, tf.maximum(size - least, 0)) if least else size
  return size, present, closed


def _report(count, present, closed):
  return tf.stack([count, present, tf.cast(closed, tf.int32)])


def _enqueue_first(queue, vals, count):
  """Puts in the first elements of a batch; none, also into a closed queue, where count is 0."""
  # Slices share the batch's memory; tf.cond takes three times the operations.
  return tf.raw_ops.QueueEnqueueManyV2(
    handle=queue.queue_ref, components=[value[:count] for value in vals])


def _only_look(queue, guard):
  def step():
    _, present, closed = _look(queue)
    return [_report(tf.constant(0), present, closed)]

  return guard.step(step)


def _quick_take(queue, guard, n):
  """The first try of `get`: fewer operations and no report, as the elements usually are there."""
  def step():
    least = queue.spec.min_after_dequeue
    size = tf.raw_ops.QueueSizeV2(handle=queue.queue_ref)
    count = tf.where_v2(size - least >= n if least else size >= n, n, 0)
    return tf.raw_ops.QueueDequeueManyV2(
      handle=queue.queue_ref, n=count, component_types=queue.dtypes)

  return guard.step(step, may_be_first=False)


def _quick_put(queue, guard, vals):
  """The first try of `put`, as there usually is room; it fails if the queue is closed."""
  def step():
    count = tf.shape(vals[0])[0]
    size = tf.raw_ops.QueueSizeV2(handle=queue.queue_ref)
    most = queue.spec.capacity if queue.spec.capacity > 0 else _MANY
    count = tf.where_v2(size <= most - count, count, 0)
    with tf.control_dependencies([_enqueue_first(queue, vals, count)]):
      return [tf.identity(count)]

  return guard.step(step, vals, may_be_first=False)


def _take_one(queue, guard):
  def step():
    _, present, closed = _look(queue)
    components = tf.cond(
      present > 0,
      lambda: tf.raw_ops.QueueDequeueV2(
        handle=queue.queue_ref, component_types=queue.dtypes),
      lambda: [tf.zeros([], dtype) for dtype in queue.dtypes], strict=True)
    return list(components) + [_report(tf.minimum(present, 1), present, closed)]

  return guard.step(step, may_be_first=False)


def _discard(queue, guard):
  def step():
    close = tf.raw_ops.QueueCloseV2(handle=queue.queue_ref, cancel_pending_enqueues=True)
    with tf.control_dependencies([close]):
      destroy = tf.raw_ops.DestroyResourceOp(resource=queue.queue_ref)
    with tf.control_dependencies([destroy, guard.write_state("")]):
      return [tf.constant(True)]

  return guard.step(step, may_be_first=False)
