"""Dense gradient accumulators behind names, which average exactly what was asked for.

TensorFlow's `ConditionalAccumulator` averages all that has arrived, however many were asked for,
and drops a gradient that is too old without a word. Here

1. `apply` says whether the gradient was taken, and what was dropped is counted, by worker;
2. `take` averages exactly n gradients, the oldest ones, and leaves the others for the next take;
   a take that timed out takes nothing;
3. `try_apply` and `try_take` build operations that never block, for a step that runs on the ps.

The age of a gradient is looked at when it arrives: those that wait are not dropped any more.
sparse_accumulators.py has the sparse kind, accumulator_steps.py what happens on the server.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.state import accumulator_steps
from tf1ps.state.accumulator_steps import Applied


class TakenMean(NamedTuple):
  """What a try_take took."""

  mean: tf.Tensor  # the mean of n gradients, of the accumulator's shape; zeros where none was taken
  taken: tf.Tensor  # bool scalar: whether there were n gradients
  present: tf.Tensor  # int32 scalar: gradients that were there


class Accumulator(accumulator_steps.NamedAccumulator):
  """A dense gradient accumulator; where it lives, and its container, are those of a queue."""

  def __init__(self, dtype, shape, shared_name: Optional[str] = None, capacity: int = -1,
               name: str = "accumulator", *, device: Optional[str] = None,
               container: Optional[str] = None):
    """Builds the accumulator's operations in the default graph.

    Args:
      dtype: of the gradients.
      shape: of a gradient; fully known.
      shared_name: the name under which others use it; None: private to each session.
      capacity: how many gradients may wait; below 0: no limit.
      name: of the operation.
      device: where it lives, such as "/job:ps/task:1"; see placing.py.
      container: its container; see placing.py.

    Raises:
      ValueError: a capacity of 0, a shape that is not known, an illegal container.
    """
    shape = tf.TensorShape(shape)
    if not shape.is_fully_defined():
      raise ValueError("the shape of an accumulator must be fully known, got %s" % (shape,))
    dtype = tf.as_dtype(dtype)
    self._make(
      dtype, shape, [dtype], [shape], shared_name, capacity, device, container, name)

  def try_apply(self, gradient, local_step=0, worker=-1, name=None) -> Applied:
    """Builds an operation that applies a gradient, and never blocks.

    Args:
      gradient: a tensor of the accumulator's shape.
      local_step: an integer scalar: the time step that the gradient was computed at.
      worker: an integer scalar: whom to count it for; -1: nobody.
      name: of the operation.

    Raises:
      tf.errors.InvalidArgumentError: when run, "container ... was reset".
    """
    with tf.name_scope(name, "%s_try_apply" % self._guard.name_in_graph):
      gradient = tf.convert_to_tensor(gradient, self.dtype)
      gradient.shape.assert_is_compatible_with(self.shape)
      return accumulator_steps.applied(self._apply_step([gradient], local_step, worker)[0])

  def try_take(self, n, name=None) -> TakenMean:
    """Builds an operation that averages n gradients if they are there, and never blocks.

    The mean is computed where the accumulator lives.

    Args:
      n: how many; an integer or an int32 scalar.
      name: of the operation.

    Raises:
      tf.errors.InvalidArgumentError: when run, "container ... was reset".
    """
    with tf.name_scope(name, "%s_try_take" % self._guard.name_in_graph):
      mean, present, taken = self._take_step(
        n, lambda: [self._mean(n)], lambda: [tf.zeros(self.shape, self.dtype)])
      mean.set_shape(self.shape)
      return TakenMean(mean, taken, present)

  def apply(self, session, gradient, local_step: int = 0, worker: Optional[int] = None) -> bool:
    """Applies a gradient.

    Args:
      session: a session of the accumulator's graph; no hooks are run.
      gradient: a value of the accumulator's shape.
      local_step: the time step that the gradient was computed at.
      worker: the index of the worker to count it for.

    Returns:
      Whether it was taken; False: it is older than the time step, and was dropped and counted.

    Raises:
      queue_errors.QueueFull: as many gradients as the capacity wait; it was dropped and counted.
      queue_errors.QueueReset, QueueMismatch: see queue_errors.py.
    """
    return self._apply(session, [gradient], local_step, worker)

  def take(self, session, n: int, timeout: float = 300.0) -> np.ndarray:
    """Waits for n gradients and takes the mean of the n oldest; the others stay.

    Args:
      session: a session of the accumulator's graph; no hooks are run.
      n: how many.
      timeout: seconds; 0: one look.

    Returns:
      The mean, of the accumulator's shape.

    Raises:
      ValueError: more than the capacity.
      queue_errors.QueueEmpty: the time was over; nothing was taken.
      queue_errors.QueueReset, QueueMismatch: see queue_errors.py.
    """
    mean, = self._take(session, n, timeout)
    return mean[0]

  def _prepare(self, values):
    return values

  def _mean(self, n):
    # One by one: a dequeue_many would copy them.
    def take_one():
      gradient, = tf.raw_ops.QueueDequeueV2(handle=self._queue, component_types=self._types)
      gradient.set_shape(self.shape)
      return gradient

    _, total = tf.while_loop(
      lambda i, _: i < n, lambda i, total: [i + 1, total + take_one()],
      [tf.constant(1), take_one()], parallel_iterations=1)
    return total / tf.cast(n, self.dtype)

  def _fed_take(self, n):
    # Where nothing is taken, nothing as large as a gradient travels.
    nothing = [0] + self.shape.as_list()
    return self._take_step(n, lambda: [self._mean(n)[tf.newaxis]],
                           lambda: [tf.zeros(nothing, self.dtype)], meets=False)
