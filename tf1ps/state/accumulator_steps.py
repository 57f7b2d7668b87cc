"""The steps that dense and sparse accumulators share, on the task where the accumulator lives.

A queue holds the gradients. A table beside it, from int64 to int64, holds the time step and the
counts. Both live in the accumulator's container, and only steps of its guard (guard.py) use them:

  apply   1. compares the gradient's local step with the time step, and the size with the capacity
          2. puts the gradient into the queue, or drops it
          3. counts it, in total and for its worker: taken, stale or full
  take    1. reads the number of gradients; if there are fewer than n, it takes none
          2. takes the n oldest and averages them there
          3. adds one to the time step

A step waits only for other steps, so none is cancelled half-way.
"""

from __future__ import annotations

from typing import Dict, List, NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING
from tf1ps.state import guard as guard_lib
from tf1ps.state import pinning, queue_call, queue_errors, queue_steps
from tf1ps.state.sum_dtypes import sum_dtype

_KIND = "accumulator"  # a kind of thing, for the guard
_TAKEN, _STALE, _FULL = 1, 2, 3  # outcomes of an apply, and keys of the totals in the table
_TIME_STEP = 0  # the key of the time step
_KEYS_PER_WORKER = 4


class Applied(NamedTuple):
  """The outcome of a try_apply. Exactly one field is true."""

  taken: tf.Tensor  # bool scalar: the gradient waits to be averaged
  stale: tf.Tensor  # bool scalar: it was dropped, its local step is below the time step
  full: tf.Tensor  # bool scalar: it was dropped, as many as the capacity wait


class Counts(NamedTuple):
  """The number of gradients since the accumulator was made, by outcome."""

  taken: int  # averaged, or waiting for it
  stale: int  # dropped because they were older than the time step
  full: int  # dropped because there was no room
  workers: Dict[int, tuple]  # (taken, stale, full) by index of the workers that gave theirs


class _Table:
  """The time step and the counts, in one graph."""

  def __init__(self, container: str, shared_name: str):
    self._handle = tf.raw_ops.MutableHashTableV2(
      key_dtype=tf.int64, value_dtype=tf.int64, container=container, shared_name=shared_name)

  def time_step(self) -> tf.Tensor:
    """The time step, an int64 scalar; 0 at first."""
    return self._find(tf.constant(_TIME_STEP, tf.int64))

  def set_time_step(self, step: tf.Tensor) -> tf.Operation:
    return self._insert(tf.constant(_TIME_STEP, tf.int64), step)

  def count(self, outcome: tf.Tensor, worker: tf.Tensor) -> tf.Operation:
    """Counts a gradient in total and for its worker (-1: none). Both are int64 scalars."""
    keys = tf.stack([outcome, outcome + _KEYS_PER_WORKER * (worker + 1)])
    return self._insert(keys, self._find(keys) + 1)

  def export(self) -> List[tf.Tensor]:
    """All keys and values, for `_time_step_of` and `_counts_of`."""
    return list(tf.raw_ops.LookupTableExportV2(
      table_handle=self._handle, Tkeys=tf.int64, Tvalues=tf.int64))

  def _find(self, keys):
    return tf.raw_ops.LookupTableFindV2(
      table_handle=self._handle, keys=keys, default_value=tf.constant(0, tf.int64))

  def _insert(self, keys, values):
    return tf.raw_ops.LookupTableInsertV2(table_handle=self._handle, keys=keys, values=values)


def _time_step_of(keys, values) -> int:
  """The time step in an exported table."""
  return dict(zip(keys.tolist(), values.tolist())).get(_TIME_STEP, 0)


def _counts_of(keys, values) -> Counts:
  """The counts in an exported table."""
  found = dict(zip(keys.tolist(), values.tolist()))

  def of(worker):
    first = _KEYS_PER_WORKER * (worker + 1)
    return tuple(found.get(first + outcome, 0) for outcome in (_TAKEN, _STALE, _FULL))

  workers = sorted({key // _KEYS_PER_WORKER - 1 for key in found if key >= _KEYS_PER_WORKER})
  return Counts(*of(-1), workers={worker: of(worker) for worker in workers})


class _Steps(NamedTuple):
  """The steps that the methods with a session run."""

  look: list  # int32 [1]: gradients that wait
  register: tf.Tensor  # string scalar: the register's description of the name
  export: list  # keys and values of the table
  step: tf.Tensor  # int64 scalar, to feed: a local or global step
  worker: tf.Tensor  # int64 scalar, to feed
  n: tf.Tensor  # int32 scalar, to feed
  set_step: list  # bool scalar
  values: list  # the components of a gradient, to feed
  apply: list  # the outcome, int64 scalar; gradients that wait, int32 scalar
  take: list  # components of the mean; gradients that waited, int32 scalar; whether it took n, bool


class NamedAccumulator(guard_lib.Guarded):
  """An accumulator behind a name. A kind of it defines `_prepare` and `_fed_take`.

  Attributes:
    poll_secs: seconds between two requests of a waiting caller.
    spec: class and capacity, a `QueueSpec`.
    dtype, shape: of the variable.
  """

  poll_secs = TIMING.queue_poll_interval

  def _make(self, dtype, shape, types, shapes, shared_name, capacity, device, container, name):
    """Makes queue, table and steps; types and shapes are those of a gradient's components."""
    kind = type(self).__name__
    if isinstance(capacity, bool) or int(capacity) != capacity or capacity == 0:
      raise ValueError(
        "capacity of %s must be a number of gradients above 0, or below 0 for no limit, got %r" % (
          kind, capacity))
    if not (dtype.is_floating or dtype.is_complex):
      raise ValueError("dtype of %s must be floating-point or complex, as a mean is, got %s" % (
        kind, dtype.name))
    self.dtype, self.shape = dtype, shape
    self._sum_dtype = sum_dtype(dtype)
    self.spec = queue_steps.QueueSpec(kind, int(capacity), 0)
    self._types = types
    hidden = "tf1ps.accumulator:%s" % shared_name if shared_name else ""
    with tf.name_scope(name) as scope, pinning.shared_placement(
      shared_name or "", device, container
    ):
      self._queue = tf.raw_ops.FIFOQueueV2(
        component_types=types, shared_name=hidden, name=scope,
        shapes=shapes if all(one.is_fully_defined() for one in shapes) else [])
    self._guard = guard_lib.Guard(
      self._queue.op, _KIND, shared_name or "",
      dict(kind=kind, capacity=int(capacity), dtype=dtype.name, shape=shape.as_list()))
    with tf.control_dependencies(None), tf.name_scope("%s_steps" % self._guard.name_in_graph):
      with self._beside():
        self._table = _Table(self._guard.container, hidden)
      self._steps = self._build(shapes)

  def try_set_global_step(self, step) -> tf.Operation:
    """Builds an operation that sets the time step; later gradients with older steps are dropped."""
    return self._set_step(tf.cast(step, tf.int64))[0].op

  def num_accumulated(self, session) -> int:
    """Returns the number of gradients that wait."""
    return int(self._call(session, "num_accumulated()").run(self._steps.look)[0][0])

  def set_global_step(self, session, step: int) -> None:
    """Sets the time step; later gradients with older local steps are dropped."""
    self._call(session, "set_global_step()").run(self._steps.set_step, {self._steps.step: step})

  def global_step(self, session) -> int:
    """Returns the time step: 0 at first, and each take adds one."""
    return _time_step_of(*self._call(session, "global_step()").run(self._steps.export))

  def counts(self, session) -> Counts:
    """Returns the number of gradients by outcome, of all clients."""
    return _counts_of(*self._call(session, "counts()").run(self._steps.export))

  def _apply(self, session, values, local_step, worker) -> bool:
    """Applies a gradient; returns False if it was dropped as stale."""
    if worker is not None and (isinstance(worker, bool) or worker < 0):
      raise ValueError("worker must be an index, 0 or more, got %r" % (worker,))
    call = self._call(session, "apply()", 1)
    feed = dict(zip(self._steps.values, values))
    feed[self._steps.step] = local_step
    feed[self._steps.worker] = -1 if worker is None else worker
    outcome, present = call.run(self._steps.apply, feed)
    if outcome == _FULL:
      raise call.full(present)
    return bool(outcome == _TAKEN)

  def _take(self, session, n, timeout, feed=()) -> list:
    """Waits for n gradients; returns the components of their mean."""
    if isinstance(n, bool) or int(n) != n or n < 1:
      raise ValueError("n must be a number of gradients above 0, got %r" % (n,))
    if 0 < self.spec.capacity < n:
      raise ValueError("take(%d) from an accumulator with a capacity of %d would never end" % (
        n, self.spec.capacity))
    if timeout is None:
      raise ValueError("timeout must be a number of seconds, 0 or more, got None")
    call = self._call(session, "take(%d)" % n, n, timeout)
    feed = dict(feed)
    feed[self._steps.n] = n
    while True:
      (present,), = call.run(self._steps.look)
      if present >= n:  # only then run the step that sends a tensor of the gradient's size
        *mean, present, taken = call.run(self._steps.take, feed)
        if taken:
          return mean
      call.pause(present, False, queue_errors.QueueEmpty)

  def _call(self, session, operation, requested=0, timeout=None):
    return queue_call.QueueCall(self, session, operation, requested, timeout)

  def _try_apply(self, values, local_step, worker) -> Applied:
    outcome = self._apply_step(values, local_step, worker)[0]
    return Applied(tf.equal(outcome, _TAKEN), tf.equal(outcome, _STALE), tf.equal(outcome, _FULL))

  def _apply_step(self, values, local_step, worker, may_be_first=True) -> list:
    """Builds the step; returns the outcome and the number of gradients that wait."""
    step, worker = tf.cast(local_step, tf.int64), tf.cast(worker, tf.int64)

    def function():
      size = tf.raw_ops.QueueSizeV2(handle=self._queue)
      outcome = tf.constant(_TAKEN, tf.int64)
      if self.spec.capacity > 0:
        outcome = tf.where_v2(size < self.spec.capacity, outcome, _FULL * outcome)
      outcome = tf.where_v2(step < self._table.time_step(), tf.constant(_STALE, tf.int64), outcome)

      def enqueue():
        with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(
            handle=self._queue, components=values)]):
          return tf.identity(size) + 1

      with tf.control_dependencies([self._table.count(outcome, worker)]):
        size = tf.cond(tf.equal(outcome, _TAKEN), enqueue, lambda: tf.identity(size))
      return [outcome, size]

    return self._guard.step(function, list(values) + [step, worker], may_be_first)

  def _take_step(self, n, mean, nothing, may_be_first=True) -> list:
    """Builds the step that takes n gradients, an int32 scalar, if they are there.

    Args:
      n: int32 scalar.
      mean: takes n gradients out of the queue; returns the components of their mean.
      nothing: returns components of the same types, for fewer gradients.
      may_be_first: see `Guard.step`.

    Returns:
      The components; the number of gradients that were there; whether it took n.
    """
    n = tf.convert_to_tensor(n, tf.int32)

    def function():
      size = tf.raw_ops.QueueSizeV2(handle=self._queue)
      enough = tf.logical_and(size >= n, n > 0)
      components = tf.cond(enough, mean, nothing, strict=True)
      later = self._table.time_step() + tf.cast(enough, tf.int64)
      with tf.control_dependencies([self._table.set_time_step(later)]):
        return list(components) + [tf.identity(size), tf.identity(enough)]

    return self._guard.step(function, [n], may_be_first)

  def _set_step(self, step) -> list:
    def function():
      with tf.control_dependencies([self._table.set_time_step(step)]):
        return [tf.constant(True)]

    return self._guard.step(function, [step], may_be_first=False)

  def _build(self, shapes) -> _Steps:
    step = tf.placeholder(tf.int64, [], "step")
    worker = tf.placeholder(tf.int64, [], "worker")
    n = tf.placeholder(tf.int32, [], "n")
    values = [tf.placeholder(dtype, shape, "value") for dtype, shape in zip(self._types, shapes)]
    with self._beside():
      prepared = self._prepare(values)
    return _Steps(
      look=self._guard.step(lambda: [tf.raw_ops.QueueSizeV2(handle=self._queue)[tf.newaxis]]),
      register=self._guard.read_register(),
      export=self._guard.step(self._table.export, may_be_first=False),
      step=step, worker=worker, n=n, set_step=self._set_step(step), values=values,
      apply=self._apply_step(prepared, step, worker, may_be_first=False), take=self._fed_take(n))

  def _beside(self):
    return self._queue.graph.colocate_with(self._queue.op)
