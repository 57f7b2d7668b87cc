"""Steps on a queue that never block: each looks at the size and takes or puts what fits.

TensorFlow's `dequeue_many(4)` dequeues the elements that are there and waits for more. If it is
cancelled during the wait, the dequeued elements are lost. A step here reads the size first, and
runs TensorFlow's operation only if that operation need not wait. Between these two operations, the
guard (guard.py) keeps out other steps, but not TensorFlow's own operations of other clients: after
such an operation, a step may wait for the next element. So on a queue whose elements must not be
lost, do not mix steps with TensorFlow's own operations.
"""

from __future__ import annotations

import functools
from typing import List, NamedTuple, Optional, Sequence, Tuple

import tensorflow.compat.v1 as tf

from tf1ps import graph
from tf1ps.state import guard as guard_lib

ENDED, CANCELLED = "ended", "cancelled"  # why a queue was closed
_MANY = 2 ** 31 - 1  # elements; the capacity of a queue without a limit


class QueueSpec(NamedTuple):
  """The properties of a queue on which its clients must agree."""

  kind: str  # the class: "FIFOQueue"
  capacity: int  # elements; below 0: no limit
  min_after_dequeue: int  # elements that stay until the close; 0 except for RandomShuffleQueue


class Steps(NamedTuple):
  """The steps that `get`, `put` and the other methods run, each in a separate session run.

  A report is int32 `[3]`: elements moved, elements that were present, whether the queue is closed.
  """

  n: tf.Tensor  # int32 scalar, to feed: how many elements
  up_to: tf.Tensor  # bool scalar, to feed: whether fewer are enough
  take: list  # components, then the report; a batch if the shapes are known, else one element
  vals: list  # to feed: one batch per component
  put: list  # the report
  look: list  # a report without a move; the only step that may be the first step of a session
  quick_take: list  # the components of n elements or of no element; [] if shapes are unknown
  quick_put: list  # int32 scalar: the number of enqueued elements
  state: list  # string scalar: why the queue was closed
  entries: List[tf.Tensor]  # see `Guard.entries`
  discard: list  # closes the queue and destroys it
  forget: tf.Operation  # makes the session accept the queue that is there now
  announced: List[tf.Operation]  # registers the queue; [] if its name is not shared


class _Form(NamedTuple):
  """The properties of a queue that decide which operations its steps need."""

  dtypes: tuple
  in_batches: bool  # see `has_shapes`
  has_least: bool  # whether a number of elements stays until the queue is closed
  is_shared: bool  # whether other clients know the queue's name


class _Queue(NamedTuple):
  """A queue for the steps; its numbers are int32 scalars."""

  handle: tf.Tensor
  dtypes: Sequence[tf.DType]
  capacity: tf.Tensor  # elements
  least: Optional[tf.Tensor]  # elements that stay until the queue is closed, or None
  zero: tf.Tensor


class _Look(NamedTuple):
  """The queue's state, which a step reads first; all are scalars."""

  size: tf.Tensor  # int32: elements
  present: tf.Tensor  # int32: elements that can be taken
  closed: tf.Tensor  # bool
  closed_number: tf.Tensor  # int32: 1 if the queue is closed, else 0


def has_shapes(queue) -> bool:
  """Whether batches can be dequeued: TensorFlow needs known shapes, or known ranks to pad."""
  return all(shape.ndims is not None for shape in queue.shapes)


def batch_of(shape) -> tf.TensorShape:
  """The shape of a batch of components."""
  return tf.TensorShape([None]).concatenate(shape)


def build(queue, label: guard_lib.Label) -> Tuple[guard_lib.Guard, Steps]:
  """Builds the guard and the steps beside the queue; returns both."""
  op = queue.queue_ref.op
  template = _template(_Form(
    tuple(tf.as_dtype(dtype) for dtype in queue.dtypes), has_shapes(queue),
    queue.spec.min_after_dequeue > 0, bool(label.name)))
  names, constant = guard_lib.resource_names(label), graph.constant_attributes
  attributes = {
    guard_lib.MUTEX: {"shared_name": graph.text_attribute(names.mutex)},
    guard_lib.REGISTER_TABLE: {"shared_name": graph.text_attribute(names.register),
                 "container": graph.text_attribute(label.container)},
    "capacity": constant(_most(queue.spec), tf.int32),
    "least": constant(queue.spec.min_after_dequeue, tf.int32),
  }
  attributes.update(guard_lib.constants_of(label))
  with tf.control_dependencies(None):
    ops, steps = template.add([queue.queue_ref], guard_lib.device_of(op), attributes,
                              "%s_steps" % op.name.split("/")[-1])
  return guard_lib.Guard(op, label, ops), steps


@functools.lru_cache(maxsize=None)
def _template(form: _Form) -> graph.Template:
  def make():
    handle = tf.placeholder(tf.resource, [], "queue")
    label = guard_lib.Label(guard_lib.QUEUE_KIND, "queue" if form.is_shared else "", "", "")
    guard = guard_lib.Guard(handle.op, label)
    queue = _Queue(handle, form.dtypes, guard.constant(_MANY, name="capacity"),
                   guard.constant(2, name="least") if form.has_least else None,
                   guard.constant(0))
    return [handle], (guard.ops, _build(queue, guard, form))

  return graph.Template(make)


def _build(queue: _Queue, guard, form: _Form) -> Steps:
  n, up_to = tf.placeholder(tf.int32, [], "n"), tf.placeholder(tf.bool, [], "up_to")
  vals = [tf.placeholder(dtype, None, "vals") for dtype in form.dtypes]
  begin = guard.begin()
  with tf.control_dependencies(begin[1:]):
    look = _look(queue)

  def step(function, *args):
    return guard.step(lambda: function(queue, *args), begin=begin)

  announced = [guard_lib.announce(queue.handle.op, guard.label, guard.ops.register)]
  return Steps(
    n=n, up_to=up_to, vals=vals,
    take=step(_take, look, n, up_to) if form.in_batches else step(_take_one, look),
    put=step(_put, look, vals, n, False),
    look=guard.step(lambda: [_report(queue.zero, _look(queue))]),
    quick_take=step(_quick_take, look, n) if form.in_batches else [],
    quick_put=step(_quick_put, look, vals, n),
    state=guard.step(lambda: [guard.read_state()], begin=begin),
    entries=guard.entries(), discard=step(_discard, guard), forget=guard.forget(),
    announced=announced if form.is_shared else [])


def take(queue, guard, n, up_to) -> list:
  """Builds a step that takes n elements if there are so many, or else, with `up_to`, fewer.

  `n` is an int32 scalar, 0 or more; `up_to` is a bool or a bool scalar. Returns the components,
  `[count, ...]` each, and the report.
  """
  view = _view(queue, guard)
  return guard.step(lambda: _take(view, _look(view), n, up_to))


def put(queue, guard, vals, up_to: bool) -> list:
  """Builds a step that enqueues a batch if there is room; returns [the report].

  `vals` has a tensor `[n, ...]` per component. With `up_to`, the step may enqueue only the first
  elements.
  """
  view, given = _view(queue, guard), tf.shape(vals[0])[0]
  return guard.step(lambda: _put(view, _look(view), vals, given, up_to), [*vals, given])


def write_state(guard, text: str) -> List[tf.Tensor]:
  """Builds a step that notes beside the queue why it is closed."""
  attributes = guard_lib.constants_of(guard.label)
  attributes["text"] = graph.constant_attributes(text, tf.string)
  return _note_template().add(
    list(guard.ops), guard.device, attributes, "%s_%s" % (guard.name_in_graph, text))


@functools.lru_cache(maxsize=None)
def _note_template() -> graph.Template:
  def make():
    ops = guard_lib.GuardOps(*(
      tf.placeholder(tf.int64 if "key" in field else tf.resource, [], field)
      for field in guard_lib.GuardOps._fields))
    guard = guard_lib.Guard(ops.mutex.op, guard_lib.Label(guard_lib.QUEUE_KIND, "", "", ""), ops)
    text = guard.constant("a note", name="text")
    return list(ops), guard.step(lambda: [guard.constant(True), guard.write_state(text)])

  return graph.Template(make)


def _most(spec: QueueSpec) -> int:
  """The number of elements that a queue can hold."""
  return min(spec.capacity, _MANY) if spec.capacity > 0 else _MANY


def _view(queue, guard) -> _Queue:
  least = queue.spec.min_after_dequeue
  return _Queue(queue.queue_ref, queue.dtypes, guard.constant(_most(queue.spec)),
                guard.constant(least) if least else None, guard.constant(0))


def _look(queue: _Queue) -> _Look:
  size = tf.raw_ops.QueueSizeV2(handle=queue.handle)
  with tf.control_dependencies([size]):
    closed = tf.raw_ops.QueueIsClosedV2(handle=queue.handle)
  present = size
  if queue.least is not None:
    present = tf.where_v2(closed, size, tf.maximum(size - queue.least, queue.zero))
  return _Look(size, present, closed, tf.cast(closed, tf.int32))


def _report(count, look, present=None):
  return tf.stack([count, look.present if present is None else present, look.closed_number])


def _take(queue, look, n, up_to):
  is_enough = tf.logical_or(up_to, look.present >= n)
  count = tf.where_v2(is_enough, tf.minimum(look.present, n), queue.zero)
  return [*_dequeue(queue, count), _report(count, look)]


def _put(queue, look, vals, given, up_to):
  room, count = queue.capacity - look.size, given
  if up_to:
    count = tf.minimum(given, room)
  fits = tf.logical_and(count <= room, tf.logical_not(look.closed))
  count = tf.where_v2(fits, count, queue.zero)
  return [_report(count, look, look.size), _enqueue_first(queue, vals, count)]


def _dequeue(queue, count):
  # With n=0 the operation immediately returns an empty batch, even if the queue is closed.
  return tf.raw_ops.QueueDequeueManyV2(handle=queue.handle, n=count, component_types=queue.dtypes)


def _enqueue_first(queue, vals, count):
  """Enqueues the first elements of a batch; with a count of 0, also works on a closed queue."""
  # Slices share the batch's memory; tf.cond would take three times as many operations.
  begin, end, strides = tf.constant([0]), tf.raw_ops.Pack(values=[count]), tf.constant([1])
  return tf.raw_ops.QueueEnqueueManyV2(handle=queue.handle, components=[
    tf.raw_ops.StridedSlice(input=value, begin=begin, end=end, strides=strides) for value in vals])


def _quick_take(queue, look, n):
  """The first try of `get`: fewer operations, no report, because the elements usually are there."""
  present = look.size if queue.least is None else look.size - queue.least
  return _dequeue(queue, tf.where_v2(present >= n, n, queue.zero))


def _quick_put(queue, look, vals, n):
  """The first try of `put`, because there usually is room; it fails if the queue is closed."""
  count = tf.where_v2(look.size <= queue.capacity - n, n, queue.zero)
  return [count, _enqueue_first(queue, vals, count)]


def _take_one(queue, look):
  components = tf.cond(
    look.present > 0,
    lambda: tf.raw_ops.QueueDequeueV2(handle=queue.handle, component_types=queue.dtypes),
    lambda: [tf.zeros([], dtype) for dtype in queue.dtypes], strict=True)
  return [*components, _report(tf.minimum(look.present, 1), look)]


def _discard(queue, guard):
  close = tf.raw_ops.QueueCloseV2(handle=queue.handle, cancel_pending_enqueues=True)
  with tf.control_dependencies([close]):
    destroy = tf.raw_ops.DestroyResourceOp(resource=queue.handle)
  return [queue.zero, destroy, guard.write_state(guard.constant(""))]
