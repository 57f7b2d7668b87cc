"""Steps on a queue that never block: look, and take or put what is possible, as one.

A stock `dequeue_many(4)` takes what is there and waits for the rest; cancelled meanwhile, it loses
what it took. Here the size is looked at first, and the stock operation only runs where it has all
that it needs at once. The guard (guard.py) keeps other steps out in between. A stock operation of
somebody else's may still come in between: then ours waits for the next element as stock would, so
do not mix them on a queue whose elements must not be lost.
"""

from __future__ import annotations

from typing import List, NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.state import queue_elements

ENDED, CANCELLED = "ended", "cancelled"  # why a queue was closed
_MANY = 2 ** 31 - 1  # elements; where a queue has no limit


class Taken(NamedTuple):
  """What a try_dequeue_many took."""

  components: object  # as dequeue_many returns them: tensor, list or dict; each `[count, ...]`
  count: tf.Tensor  # int32 scalar: elements that were taken
  present: tf.Tensor  # int32 scalar: elements that could have been taken
  closed: tf.Tensor  # bool scalar: whether the queue is closed


class Put(NamedTuple):
  """What a try_enqueue_many put in."""

  count: tf.Tensor  # int32 scalar: elements that were put in, from the first on
  present: tf.Tensor  # int32 scalar: elements in the queue before
  closed: tf.Tensor  # bool scalar: whether the queue is closed


class Steps(NamedTuple):
  """What `get`, `put` and the others run. A report is int32 [3]: count, present, closed."""

  n: tf.Tensor  # int32 scalar, to feed
  up_to: tf.Tensor  # bool scalar, to feed
  take: list  # components, then the report; many, where the shapes are known, else one
  vals: list  # a batch for each component, to feed
  put: list  # the report
  look: list  # the report, and nothing is taken; alone of these it may be a session's first
  quick_take: list  # the components, of n elements or of none; [] where shapes are unknown
  quick_put: list  # like put; int32 scalar: elements that were put in
  state: list  # string scalar: why it was closed
  register: tf.Tensor  # string scalar: what lives under the name
  discard: list  # closes the queue and takes it away
  forget: tf.Operation  # has the session take what is there now


def build(queue, guard) -> Steps:
  """Builds the steps that a queue runs for its callers, beside the queue."""
  with tf.control_dependencies(None), tf.name_scope("%s_steps" % guard.name_in_graph):
    n = tf.placeholder_with_default(tf.constant(1), [], "n")
    up_to = tf.placeholder_with_default(tf.constant(False), [], "up_to")
    vals = [tf.placeholder(dtype, queue_elements.batch_of(shape), "vals")
            for dtype, shape in zip(queue.dtypes, queue.shapes)]
    has_shapes = queue_elements.has_shapes(queue)
    take = (_take(queue, guard, n, up_to, meets=False) if has_shapes else _take_one(queue, guard))
    return Steps(
      n, up_to, take, vals, _put(queue, guard, vals, False, meets=False), _only_look(queue, guard),
      _quick_take(queue, guard, n) if has_shapes else [], _quick_put(queue, guard, vals),
      guard.step(lambda: [guard.read_state()]), guard.read_register(), _discard(queue, guard),
      guard.forget())


def take_many(queue, guard, n, up_to: bool) -> Taken:
  """Builds the step behind `try_dequeue_many`."""
  if not queue_elements.has_shapes(queue):
    raise ValueError("try_dequeue_many needs a queue whose shapes are known: give it shapes")
  known = tf.get_static_value(n) if tf.is_tensor(n) else n
  if known is not None and (isinstance(known, bool) or known < 1):
    raise ValueError("n must be a number of elements above 0, got %r" % (n,))
  *components, report = _take(queue, guard, tf.maximum(tf.convert_to_tensor(n, tf.int32), 0), up_to)
  for component, shape in zip(components, queue.shapes):
    component.set_shape(queue_elements.batch_of(shape))
  return Taken(queue_elements.shaped(queue, components), report[0], report[1],
               tf.cast(report[2], tf.bool))


def put_many(queue, guard, vals, up_to: bool) -> Put:
  """Builds the step behind `try_enqueue_many`."""
  vals = [tf.convert_to_tensor(value, dtype)
          for value, dtype in zip(queue_elements.listed(queue, vals, True), queue.dtypes)]
  for value, shape in zip(vals, queue.shapes):
    value.shape.with_rank_at_least(1)[1:].assert_is_compatible_with(shape)
  report, = _put(queue, guard, vals, up_to)
  return Put(report[0], report[1], tf.cast(report[2], tf.bool))


def note(guard, text: str) -> List[tf.Tensor]:
  """Builds a step that leaves a note beside the queue, of why it is closed."""
  def write():
    with tf.control_dependencies([guard.write_state(text)]):
      return [tf.constant(True)]

  return guard.step(write)


def _look(queue):
  size = tf.raw_ops.QueueSizeV2(handle=queue.queue_ref)
  with tf.control_dependencies([size]):
    closed = tf.raw_ops.QueueIsClosedV2(handle=queue.queue_ref)
  least = queue.spec.min_after_dequeue
  there = tf.where_v2(closed, size, tf.maximum(size - least, 0)) if least else size
  return size, there, closed


def _report(count, present, closed):
  return tf.stack([count, present, tf.cast(closed, tf.int32)])


def _only_look(queue, guard):
  def step():
    _, there, closed = _look(queue)
    return [_report(tf.constant(0), there, closed)]

  return guard.step(step)


def _take(queue, guard, n, up_to, meets=True):
  def step():
    _, there, closed = _look(queue)
    enough = tf.logical_or(up_to, there >= n)
    count = tf.where_v2(enough, tf.minimum(there, n), 0)
    # Of none it brings an empty batch at once, also where the queue is closed.
    components = tf.raw_ops.QueueDequeueManyV2(
      handle=queue.queue_ref, n=count, component_types=queue.dtypes)
    return list(components) + [_report(count, there, closed)]

  return guard.step(step, meets=meets)


def _quick_take(queue, guard, n):
  """What `get` asks first, as most often the elements are there: fewer operations, no report."""
  def step():
    least = queue.spec.min_after_dequeue
    size = tf.raw_ops.QueueSizeV2(handle=queue.queue_ref)
    count = tf.where_v2(size - least >= n if least else size >= n, n, 0)
    return tf.raw_ops.QueueDequeueManyV2(
      handle=queue.queue_ref, n=count, component_types=queue.dtypes)

  return guard.step(step, meets=False)


def _quick_put(queue, guard, vals):
  """What `put` asks first, as most often there is room; it fails where the queue is closed."""
  def step():
    count = tf.shape(vals[0])[0]
    size = tf.raw_ops.QueueSizeV2(handle=queue.queue_ref)

    def enqueue():
      with tf.control_dependencies([tf.raw_ops.QueueEnqueueManyV2(
          handle=queue.queue_ref, components=vals)]):
        return tf.identity(count)

    most = queue.spec.capacity if queue.spec.capacity > 0 else _MANY
    return [tf.cond(size <= most - count, enqueue, lambda: tf.constant(0))]

  return guard.step(step, vals, meets=False)


def _take_one(queue, guard):
  def step():
    _, there, closed = _look(queue)
    components = tf.cond(
      there > 0,
      lambda: tf.raw_ops.QueueDequeueV2(
        handle=queue.queue_ref, component_types=queue.dtypes),
      lambda: [tf.zeros([], dtype) for dtype in queue.dtypes], strict=True)
    return list(components) + [_report(tf.minimum(there, 1), there, closed)]

  return guard.step(step, meets=False)


def _put(queue, guard, vals, up_to, meets=True):
  def step():
    size, _, closed = _look(queue)
    capacity = queue.spec.capacity
    room = capacity - size if capacity > 0 else tf.constant(_MANY)
    given = count = tf.shape(vals[0])[0]
    if up_to:
      count = tf.minimum(given, room)
    count = tf.where_v2(tf.logical_and(count <= room, tf.logical_not(closed)), count, 0)

    def enqueue():
      part = [value[:count] for value in vals] if up_to else vals
      with tf.control_dependencies([tf.raw_ops.QueueEnqueueManyV2(
          handle=queue.queue_ref, components=part)]):
        return tf.identity(count)

    count = tf.cond(count > 0, enqueue, lambda: tf.constant(0))
    return [_report(count, size, closed)]

  return guard.step(step, vals, meets)


def _discard(queue, guard):
  def step():
    close = tf.raw_ops.QueueCloseV2(handle=queue.queue_ref, cancel_pending_enqueues=True)
    with tf.control_dependencies([close]):
      destroy = tf.raw_ops.DestroyResourceOp(resource=queue.queue_ref)
    with tf.control_dependencies([destroy, guard.write_state("")]):
      return [tf.constant(True)]

  return guard.step(step)
