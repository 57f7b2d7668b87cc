"""One gradient from several batches: a larger batch, whose values are pulled and pushed once.

The part of the graph that computes a batch's gradients is there k times. In a run, in this order:

1. The values of the variables arrive on the worker, once. (Rows that are gathered for a batch, as
   of an embedding, are fetched for each batch.)
2. The batches are drawn one after the other: the next one when the gradients of the one before it
   have been added up. The sums are in variables on the worker that no checkpoint has: of dense
   gradients weighted by the sizes of the batches, of sparse ones all rows, weighted likewise.
3. The sums over the sum of the sizes are the gradients that are clipped, pushed and applied: where
   the loss is a mean, that is the gradient of one batch k times as large. The loss is the mean too.

Where the data end in between, what was added up is still there, and `Rest` pushes it. Operations in
UPDATE_OPS see the first batch alone.
"""

from __future__ import annotations

import uuid
from typing import Any, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.transfer import graph_copies, placed, step_chain


class AccumulatedRemainder(NamedTuple):
  """What pushes the batches that were added up when the data ended."""

  pending: tf.Tensor  # int64: how many batches that are; run the others only where there are some
  train_op: tf.Operation
  loss: tf.Tensor  # the mean over their examples
  batch_size: tf.Tensor  # int64: the sum of their sizes
  fetches: Any  # the copies of what was given to `rest`


class Accumulated:
  """The gradients of several batches.

  Attributes:
    grads_and_vars: the mean gradients, for `apply_gradients`; None where there was None.
    loss: the mean loss, [].
    batch_size: the sum of the batches' sizes, an int64 scalar.
  """

  def __init__(self, grads_and_vars: list, loss: tf.Tensor, batch_size: tf.Tensor, batches: int,
               together: Any = ()):
    """Builds the copies, in the graph of the gradients, which are those of the first batch.

    Args:
      grads_and_vars: as `compute_gradients` returns them.
      loss: of the batch, a scalar float tensor on the worker.
      batch_size: an int scalar tensor, as `tf.shape(x)[0]`, or a number.
      batches: how many make one gradient, 1 or more.
      together: more tensors of a batch, in a list; see `together`.

    Raises:
      ValueError: a number below 1.
    """
    if isinstance(batches, bool) or int(batches) != batches or batches < 1:
      raise ValueError("batches must be a number, 1 or more, got %r" % (batches,))
    self._worker = loss.device
    with loss.graph.as_default(), tf.control_dependencies(None), tf.device(self._worker):
      batch_size = tf.convert_to_tensor(batch_size)
    grads_and_vars = list(grads_and_vars)  # it may be a zip
    one = dict(gradients=[gradient for gradient, _ in grads_and_vars], loss=loss, size=batch_size,
               together=list(together))
    with loss.graph.as_default(), tf.control_dependencies(None), tf.name_scope("accumulated"), \
        tf.device(None), tf.device(self._worker):
      with tf.device(placed.cpu_of(placed.task_of_device(self._worker))):
        self._count = tf.raw_ops.MutableHashTableV2(
          key_dtype=tf.int64, value_dtype=tf.int64,
          shared_name="tf1ps.batches_of_step:" + uuid.uuid4().hex)
      self._key = tf.zeros([], tf.int64)
      sums = [_make_sum(gradient) for gradient in one["gradients"]]
      loss_sum = _Sum(loss.dtype, [])
      size_sum = _Sum(tf.int64, [])
      steps = self._add_up(one, int(batches), sums + [loss_sum, size_sum])
      #: For each tensor of `together`, those of all batches.
      self.together = [list(tensors) for tensors in zip(*[step["together"] for step in steps])]
      with tf.control_dependencies([self._end]):
        size = size_sum.read()
        loss_total = loss_sum.read()
        means = [None if each is None else each.mean(size) for each in sums]
      read = graph_copies.ops_of([means, size, loss_total])
      with tf.control_dependencies(read):
        emptied = self._put(0)
      with tf.control_dependencies([emptied]):  # whatever is fetched has it emptied too
        self.loss = loss_total / tf.cast(size, loss.dtype)
        self.batch_size = tf.identity(size)
        means = [_same(mean) for mean in means]
    self.grads_and_vars = [(mean, variable) for mean, (_, variable) in zip(means, grads_and_vars)]

  def rest(self, train_op: tf.Operation, fetches: Any = None) -> AccumulatedRemainder:
    """Builds what pushes a part of the batches; when all of the step is built.

    Args:
      train_op: made of `grads_and_vars`.
      fetches: more of the step that is to be fetched with it.

    Raises:
      ValueError: what comes behind the gradients computes with a tensor of the first batch.
    """
    wanted = dict(op=train_op, loss=self.loss, size=self.batch_size, fetches=fetches)
    with train_op.graph.as_default(), tf.control_dependencies(None), tf.device(None):
      # What the step does before its gradients are there was done, or belongs to no batch.
      before = graph_copies.Part(wanted).before(self._drawn, self._end.op)
      with tf.device(self._worker):
        nothing = tf.constant(0, name="nothing_before")
        pending = tf.raw_ops.LookupTableFindV2(
          table_handle=self._count, keys=self._key, default_value=self._key)
      copy = graph_copies.Part(wanted, without=before).copy(
        "rest", replace=graph_copies.Copy({op.name: nothing.op for op in before}, {}))
    found = copy.of(wanted)
    return AccumulatedRemainder(
      pending, found["op"], found["loss"], found["size"], found["fetches"]
    )

  def _add_up(self, one, batches, sums) -> List[dict]:
    """Builds the copies; returns the tensors of each batch."""
    chain = step_chain.Chain(one, self._worker, note=None)
    drawing, below = chain.drawn()
    part = graph_copies.Part(one, without=[op for op in chain.ops if op.name not in below])
    self._drawn = drawing
    steps = []
    for number in range(batches):
      step = one if number == 0 else part.copy("batch_%d" % number, number, waits={
        op.name: [self._end] for op in drawing}).of(one)
      steps.append(step)
      with tf.control_dependencies([step["loss"]]):  # a constant size counts with its batch too
        size = tf.identity(tf.cast(step["size"], tf.int64))
      values = zip(sums, step["gradients"] + [step["loss"]])
      with tf.control_dependencies([self._end] if number else []):
        added = [each.add(value, size, is_first=number == 0)
                 for each, value in values if each is not None]
        added.append(sums[-1].add(size, None, is_first=number == 0))
      with tf.control_dependencies(added):
        with tf.control_dependencies([self._put(number + 1)]):
          self._end = tf.constant(0, name="added_%d" % number)
    return steps

  def _put(self, batches):
    return tf.raw_ops.LookupTableInsertV2(
      table_handle=self._count, keys=self._key, values=tf.constant(batches, tf.int64))


def _make_sum(gradient):
  if gradient is None:
    return None
  if isinstance(gradient, tf.IndexedSlices):
    return _SparseSum(gradient)
  return _Sum(gradient.dtype, gradient.shape)


class _Sum:
  """A sum of tensors of one shape, each times a weight."""

  def __init__(self, dtype, shape):
    self._dtype, self._shape = dtype, shape
    self._handle = tf.raw_ops.VarHandleOp(
      dtype=dtype, shape=shape, shared_name="tf1ps.sum:" + uuid.uuid4().hex)

  def add(self, value, weight: Optional[tf.Tensor], is_first: bool) -> tf.Operation:
    add = tf.raw_ops.AssignVariableOp if is_first else tf.raw_ops.AssignAddVariableOp
    return add(resource=self._handle, value=_times(value, weight))

  def read(self) -> tf.Tensor:
    value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._dtype)
    value.set_shape(self._shape)
    return value

  def mean(self, size) -> tf.Tensor:
    return self.read() / tf.cast(size, self._dtype)


class _SparseSum:
  """The rows of sparse gradients, one behind the other."""

  def __init__(self, gradient):
    self._shape = gradient.dense_shape
    self._values = _Sum(gradient.values.dtype, tf.TensorShape([None]).concatenate(
      gradient.values.shape[1:]))
    self._indices = _Sum(gradient.indices.dtype, tf.TensorShape([None]))

  def add(self, gradient, weight, is_first):
    parts = [(self._values, _times(gradient.values, weight)), (self._indices, gradient.indices)]
    return tf.group(*[
      part.add(value if is_first else tf.concat([part.read(), value], 0), None, is_first=True)
      for part, value in parts])

  def mean(self, size):
    return tf.IndexedSlices(self._values.mean(size), self._indices.read(), self._shape)


def _times(value, weight):
  return value if weight is None else value * tf.cast(weight, value.dtype)


def _same(gradient):
  """The gradient, behind what is waited for around."""
  if isinstance(gradient, tf.IndexedSlices):
    return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
  return None if gradient is None else tf.identity(gradient)
