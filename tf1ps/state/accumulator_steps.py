"""What dense and sparse accumulators share: gradients in a queue, and counts beside it.

A queue on the accumulator's task holds the gradients, and a table the time step and the counts
(accumulator_counts.py). Both live in its container. All happens in steps of a guard (guard.py):

  apply   1. compares the gradient's local step with the time step, and the size with the capacity
          2. puts the gradient into the queue, or drops it
          3. counts it, in all and for its worker: taken, stale or full
  take    1. looks whether there are n gradients; where there are fewer it takes none
          2. takes the n oldest and averages them there
          3. raises the time step by one

No step waits for anything but the others, so none is ever cancelled half-way.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING
from tf1ps.state import guard as guard_lib
from tf1ps.state import placing, queue_call, queue_errors, queues
from tf1ps.state.accumulator_counts import (
  FULL,
  STALE,
  TAKEN,
  Counts,
  CountTable,
  counts_of,
  time_step_of,
)

ACCUMULATOR = "accumulator"  # a kind of thing, for the guard


class Applied(NamedTuple):
  """What became of a gradient."""

  taken: tf.Tensor  # bool scalar: it waits to be averaged
  stale: tf.Tensor  # bool scalar: it was dropped, its local step is below the time step
  full: tf.Tensor  # bool scalar: it was dropped, as many as the capacity wait


class _Steps(NamedTuple):
  """What the methods that take a session run."""

  look: list  # int32 [1]: how many gradients wait
  register: tf.Tensor  # string scalar: what lives under the name
  export: list  # keys and values of the table
  step: tf.Tensor  # int64 scalar, to feed: a local or global step
  worker: tf.Tensor  # int64 scalar, to feed
  n: tf.Tensor  # int32 scalar, to feed
  set_step: list  # bool scalar
  values: list  # what a gradient is made of, to feed
  apply: list  # the outcome, int64 scalar; how many wait, int32 scalar
  take: list  # components of the mean; how many wait, int32 scalar; whether it was taken, bool


class NamedAccumulator(guard_lib.Guarded):
  """An accumulator behind a name. Its kinds bring `_prepare` and `_fed_take`.

  Attributes:
    poll_secs: seconds between two questions of a caller that waits.
    spec: class and capacity, a `queues.QueueSpec`.
  """

  poll_secs = TIMING.queue_poll_interval

  def _make(self, dtype, shape, types, shapes, shared_name, capacity, device, container, name):
    """Makes queue, table and steps; types and shapes are those of a gradient's components."""
    kind = type(self).__name__
    if isinstance(capacity, bool) or int(capacity) != capacity or capacity == 0:
      raise ValueError(
        "capacity of %s must be a number of gradients above 0, or below 0 for no limit, got %r" % (
          kind, capacity))
    self.dtype, self.shape = dtype, shape
    self.spec = queues.QueueSpec(kind, int(capacity), 0)
    self._types = types
    hidden = "tf1ps.accumulator:%s" % shared_name if shared_name else ""
    with tf.name_scope(name) as scope, placing.shared_placement(
      shared_name or "", device, container
    ):
      self._queue = tf.raw_ops.FIFOQueueV2(
        component_types=types, shared_name=hidden, name=scope,
        shapes=shapes if all(one.is_fully_defined() for one in shapes) else [])
    self._guard = guard_lib.Guard(
      self._queue.op, ACCUMULATOR, shared_name or "",
      dict(kind=kind, capacity=int(capacity), dtype=dtype.name, shape=shape.as_list()))
    with tf.control_dependencies(None), tf.name_scope("%s_steps" % self._guard.name_in_graph):
      with self._beside():
        self._table = CountTable(self._guard.container, hidden)
      self._steps = self._build(shapes)

  def try_set_global_step(self, step) -> tf.Operation:
    """Builds an operation that sets the time step; gradients with older local steps are dropped."""
    return self._set_step(tf.cast(step, tf.int64))[0].op

  def num_accumulated(self, session) -> int:
    """How many gradients wait."""
    return int(self._call(session, "num_accumulated()").run(self._steps.look)[0][0])

  def set_global_step(self, session, step: int) -> None:
    """Sets the time step: gradients with older local steps are dropped from now on."""
    self._call(session, "set_global_step()").run(self._steps.set_step, {self._steps.step: step})

  def global_step(self, session) -> int:
    """The time step: it is 0 at first, and a take raises it by one."""
    return time_step_of(*self._call(session, "global_step()").run(self._steps.export))

  def counts(self, session) -> Counts:
    """What became of the gradients that were applied, by any client."""
    return counts_of(*self._call(session, "counts()").run(self._steps.export))

  def _apply(self, session, values, local_step, worker) -> bool:
    """Feeds a gradient; returns whether it was taken, and not dropped as stale."""
    if worker is not None and (isinstance(worker, bool) or worker < 0):
      raise ValueError("worker must be an index, 0 or more, got %r" % (worker,))
    call = self._call(session, "apply()", 1)
    feed = dict(zip(self._steps.values, values))
    feed[self._steps.step] = local_step
    feed[self._steps.worker] = -1 if worker is None else worker
    outcome, present = call.run(self._steps.apply, feed)
    if outcome == FULL:
      raise call.full(present)
    return bool(outcome == TAKEN)

  def _take(self, session, n, timeout, feed=()) -> list:
    """Waits for n gradients; returns what their mean is made of."""
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
      if present >= n:  # before that, nothing as large as a gradient travels
        *mean, present, taken = call.run(self._steps.take, feed)
        if taken:
          return mean
      call.pause(present, False, queue_errors.QueueEmpty)

  def _call(self, session, operation, requested=0, timeout=0):
    return queue_call.QueueCall(self, session, operation, requested, timeout)

  def _apply_step(self, values, local_step, worker, meets=True) -> list:
    """Builds the step: the outcome, and how many gradients wait."""
    step, worker = tf.cast(local_step, tf.int64), tf.cast(worker, tf.int64)

    def function():
      size = tf.raw_ops.QueueSizeV2(handle=self._queue)
      outcome = tf.constant(TAKEN, tf.int64)
      if self.spec.capacity > 0:
        outcome = tf.where_v2(size < self.spec.capacity, outcome, FULL * outcome)
      outcome = tf.where_v2(
        step < self._table.time_step(), tf.constant(STALE, tf.int64), outcome)

      def enqueue():
        with tf.control_dependencies([tf.raw_ops.QueueEnqueueV2(
            handle=self._queue, components=values)]):
          return tf.identity(size) + 1

      with tf.control_dependencies([self._table.count(outcome, worker)]):
        size = tf.cond(tf.equal(outcome, TAKEN), enqueue, lambda: tf.identity(size))
      return [outcome, size]

    return self._guard.step(function, list(values) + [step, worker], meets)

  def _take_step(self, n, mean, nothing, meets=True) -> list:
    """Builds the step: the components of the mean, how many gradients wait, whether it took n.

    Args:
      n: int32 scalar.
      mean: takes n gradients out of the queue; returns components.
      nothing: returns components of the same types.
      meets: as for `Guard.step`.
    """
    n = tf.convert_to_tensor(n, tf.int32)

    def function():
      size = tf.raw_ops.QueueSizeV2(handle=self._queue)
      enough = tf.logical_and(size >= n, n > 0)
      components = tf.cond(enough, mean, nothing, strict=True)
      later = self._table.time_step() + tf.cast(enough, tf.int64)
      with tf.control_dependencies([self._table.set_time_step(later)]):
        return list(components) + [tf.identity(size), tf.identity(enough)]

    return self._guard.step(function, [n], meets)

  def _set_step(self, step) -> list:
    def function():
      with tf.control_dependencies([self._table.set_time_step(step)]):
        return [tf.constant(True)]

    return self._guard.step(function, [step])

  def _build(self, shapes) -> _Steps:
    step = tf.placeholder(tf.int64, [], "step")
    worker = tf.placeholder(tf.int64, [], "worker")
    n = tf.placeholder(tf.int32, [], "n")
    values = [tf.placeholder(dtype, shape, "value") for dtype, shape in zip(self._types, shapes)]
    with self._beside():
      prepared = self._prepare(values)
    return _Steps(
      look=self._guard.step(lambda: [tf.raw_ops.QueueSizeV2(handle=self._queue)[tf.newaxis]]),
      register=self._guard.read_register(), export=self._guard.step(self._table.export),
      step=step, worker=worker, n=n, set_step=self._set_step(step), values=values,
      apply=self._apply_step(prepared, step, worker, meets=False), take=self._fed_take(n))

  def _beside(self):
    return self._queue.graph.colocate_with(self._queue.op)


def applied(outcome: tf.Tensor) -> Applied:
  """An outcome as an `Applied`."""
  return Applied(tf.equal(outcome, TAKEN), tf.equal(outcome, STALE), tf.equal(outcome, FULL))
