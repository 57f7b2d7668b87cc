"""Computes one gradient from several batches: a larger batch, for one fetch and one push of values.

The graph has k copies of the part that computes the gradients of a batch. In a run, in this order:

1. The values of the variables arrive on the worker once. (Rows that are gathered for a batch, as of
   an embedding, are fetched for each batch.)
2. Each batch is drawn after the gradients of the previous batch have been added to the sums. The
   sums are variables on the worker, which no checkpoint contains. Dense gradients are weighted by
   the sizes of the batches. For sparse gradients, all rows are kept, with the same weights.
3. The sums are divided by the sum of the batch sizes. The results are the gradients that are
   clipped, pushed and applied. If the loss is a mean, they are the gradients of one batch that is
   k times as large. The loss of the step is the mean over the batches too.

If the data end between two batches, the sums still exist, and the train op of
`AccumulatedRemainder` pushes them. Operations in UPDATE_OPS see only the first batch.
"""

from __future__ import annotations

import uuid
from typing import Any, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.graph import (
  Subgraph,
  SubgraphCopy,
  consumers_of,
  cpu_of,
  descendants,
  make_gate,
  ops_of,
  predecessors_in_order,
  task_of_device,
)
from tf1ps.state import sum_dtype
from tf1ps.transfer.unrolling import StepChain


class AccumulatedRemainder(NamedTuple):
  """A step that pushes the sums of the batches before the end of the data."""

  pending: tf.Tensor  # int64: the number of these batches. If it is 0, run no other field
  train_op: tf.Operation
  loss: tf.Tensor  # the mean over the examples of the batches
  batch_size: tf.Tensor  # int64: the sum of their sizes
  fetches: Any  # the copies of the fetches that were given to `remainder`


class Accumulated:
  """The gradients of several batches.

  Attributes:
    grads_and_vars: the mean gradients for `apply_gradients`; None for a variable without a
      gradient.
    loss: the mean loss, [].
    batch_size: the sum of the batches' sizes, an int64 scalar.
    of_batches: for each tensor of the argument `of_batches`, a list of its copies for all batches.
  """

  def __init__(self, grads_and_vars: list, loss: tf.Tensor, batch_size: tf.Tensor, batches: int,
               of_batches: Any = ()):
    """Builds the copies in the graph of the gradients, which become the first batch's gradients.

    Args:
      grads_and_vars: the pairs that `compute_gradients` returns.
      loss: the loss of the batch, a scalar float tensor on the worker.
      batch_size: the examples of the batch, an int scalar tensor such as `tf.shape(x)[0]`, or a
        number.
      batches: the number of batches per gradient, 1 or more.
      of_batches: a list of further tensors of the batch, which are copied for each batch.

    Raises:
      ValueError: if `batches` is below 1, or if it is above 1 and the batch is fed.
    """
    if isinstance(batches, bool) or int(batches) != batches or batches < 1:
      raise ValueError("batches must be a number, 1 or more, got %r" % (batches,))
    self._worker, self._batches = loss.device, int(batches)
    with loss.graph.as_default(), tf.control_dependencies(None), tf.device(self._worker):
      batch_size = tf.convert_to_tensor(batch_size)
    grads_and_vars = list(grads_and_vars)  # it may be a zip
    batch = dict(gradients=[gradient for gradient, _ in grads_and_vars], loss=loss, size=batch_size,
               of_batches=list(of_batches))
    with loss.graph.as_default(), tf.control_dependencies(None), tf.name_scope("accumulated"), \
        tf.device(None), tf.device(self._worker):
      with tf.device(cpu_of(task_of_device(self._worker))):
        self._count = tf.raw_ops.MutableHashTableV2(
          key_dtype=tf.int64, value_dtype=tf.int64,
          shared_name="tf1ps.batches_of_step:" + uuid.uuid4().hex)
      self._key = tf.zeros([], tf.int64)
      self._end: tf.Tensor
      sums = [_make_sum(gradient) for gradient in batch["gradients"]]
      loss_sum = _Sum(loss.dtype, [])
      size_sum = _Sum(tf.int64, [])
      steps = self._add_up(batch, self._batches, sums + [loss_sum, size_sum])
      self.of_batches = [list(each) for each in zip(*[step["of_batches"] for step in steps])]
      with tf.control_dependencies([self._end]):
        size = size_sum.read()
        loss_mean = loss_sum.mean(size)
        means = [None if each is None else each.mean(size) for each in sums]
      read = ops_of([means, size, loss_mean])
      with tf.control_dependencies(read):
        cleared = self._put(0)
      with tf.control_dependencies([cleared]):  # each of the results waits for the clearing
        self.loss = tf.identity(loss_mean)
        self.batch_size = tf.identity(size)
        means = [_same(mean) for mean in means]
    self.grads_and_vars = [(mean, variable) for mean, (_, variable) in zip(means, grads_and_vars)]

  def remainder(self, train_op: tf.Operation, fetches: Any = None) -> AccumulatedRemainder:
    """Builds the step that pushes the sums of fewer batches. Call it when the step is finished.

    `train_op` is the update that was built from `grads_and_vars`. Raises ValueError if an operation
    after the sums needs a tensor of the first batch.
    """
    wanted = dict(op=train_op, loss=self.loss, size=self.batch_size, fetches=fetches)
    with train_op.graph.as_default(), tf.control_dependencies(None), tf.device(None):
      # Operations before the sums have run already, or belong to no batch.
      before = _ops_before(Subgraph(wanted).ops, self._drawn, self._end.op)
      with tf.device(self._worker):
        nothing = make_gate("nothing_before")
        pending = tf.raw_ops.LookupTableFindV2(
          table_handle=self._count, keys=self._key, default_value=self._key)
      copy = Subgraph(wanted, without=before).copy(
        "remainder", self._batches,  # so it draws other random numbers
        replace=SubgraphCopy({op.name: nothing.op for op in before}, {}))
    copied = copy.of(wanted)
    return AccumulatedRemainder(
      pending, copied["op"], copied["loss"], copied["size"], copied["fetches"])

  def _add_up(self, batch, batches, sums) -> List[dict]:
    """Builds the copies; returns the tensors of each batch."""
    chain = StepChain(batch, self._worker)
    if batches > 1:
      chain.check_draws()
    drawing, below = chain.drawn()
    subgraph = Subgraph(batch, without=[op for op in chain.ops if op not in below])
    self._drawn = drawing
    steps = []
    for number in range(batches):
      step = batch if number == 0 else subgraph.copy("batch_%d" % number, number, waits={
        op.name: [self._end] for op in drawing}).of(batch)
      steps.append(step)
      with tf.control_dependencies([step["loss"]]):  # a constant size waits for its batch too
        size = tf.identity(tf.cast(step["size"], tf.int64))
      values = zip(sums, step["gradients"] + [step["loss"]])
      with tf.control_dependencies([self._end] if number else []):
        added = [each.add(value, size, is_first=number == 0)
                 for each, value in values if each is not None]
        added.append(sums[-1].add(size, None, is_first=number == 0))
      with tf.control_dependencies(added):
        with tf.control_dependencies([self._put(number + 1)]):
          self._end = make_gate("added_%d" % number)
    return steps

  def _put(self, batches):
    return tf.raw_ops.LookupTableInsertV2(
      table_handle=self._count, keys=self._key, values=tf.constant(batches, tf.int64))


def _ops_before(ops: List[tf.Operation], begins: List[tf.Operation],
                end: tf.Operation) -> List[tf.Operation]:
  """Returns the operations that need `begins` and come before `end`, in the order of `ops`.

  The result leaves out an operation that only waits for `begins` and is needed after the end, such
  as a constant created in `tf.control_dependencies`. Raises ValueError if an operation after the
  end needs a value that was computed from `begins`.
  """
  after = descendants([end], consumers_of(ops, predecessors_in_order))
  before = descendants(begins, consumers_of(ops, predecessors_in_order)) - after
  computed = descendants(begins, consumers_of(ops, _inputs_in_order)) - after
  waiting = [op for op in ops if op not in before and op is not end]
  while waiting:
    op = waiting.pop()
    for needed in [tensor.op for tensor in op.inputs]:
      if needed in before and needed in computed:
        raise ValueError(
          "%s needs %s of the first batch, which is not available if the data end within a step. "
          "Compute it from the gradients of all batches" % (op.name, needed.name))
      if needed in before:
        before.remove(needed)
        waiting.append(needed)
  return [op for op in ops if op is end or op in before]


def _inputs_in_order(op):
  inputs = {tensor.op for tensor in op.inputs}
  return [before for before in predecessors_in_order(op) if before in inputs]


def _make_sum(gradient):
  if gradient is None:
    return None
  if isinstance(gradient, tf.IndexedSlices):
    return _SparseSum(gradient)
  return _Sum(gradient.dtype, gradient.shape)


class _Sum:
  """A weighted sum of tensors of one shape."""

  def __init__(self, dtype, shape):
    self._dtype, self._sum_dtype, self._shape = dtype, sum_dtype(dtype), shape
    self._handle = tf.raw_ops.VarHandleOp(
      dtype=self._sum_dtype, shape=shape, shared_name="tf1ps.sum:" + uuid.uuid4().hex)

  def add(self, value, weight: Optional[tf.Tensor], is_first: bool) -> tf.Operation:
    add = tf.raw_ops.AssignVariableOp if is_first else tf.raw_ops.AssignAddVariableOp
    return add(resource=self._handle, value=self.times(value, weight))

  def times(self, value, weight: Optional[tf.Tensor]) -> tf.Tensor:
    """The value times its weight, in the type of the sum."""
    value = tf.cast(value, self._sum_dtype)
    return value if weight is None else value * tf.cast(weight, self._sum_dtype)

  def read(self) -> tf.Tensor:
    value = tf.raw_ops.ReadVariableOp(resource=self._handle, dtype=self._sum_dtype)
    value.set_shape(self._shape)
    return value

  def mean(self, size) -> tf.Tensor:
    return tf.cast(self.read() / tf.cast(size, self._sum_dtype), self._dtype)


class _SparseSum:
  """The concatenated rows of sparse gradients."""

  def __init__(self, gradient):
    self._shape = gradient.dense_shape
    self._values = _Sum(gradient.values.dtype, tf.TensorShape([None]).concatenate(
      gradient.values.shape[1:]))
    self._indices = _Sum(gradient.indices.dtype, tf.TensorShape([None]))

  def add(self, gradient, weight, is_first):
    parts = [(self._values, self._values.times(gradient.values, weight)),
             (self._indices, gradient.indices)]
    return tf.group(*[
      part.add(value if is_first else tf.concat([part.read(), value], 0), None, is_first=True)
      for part, value in parts])

  def mean(self, size):
    return tf.IndexedSlices(self._values.mean(size), self._indices.read(), self._shape)


def _same(gradient):
  """Returns the gradient after the current control dependencies."""
  if isinstance(gradient, tf.IndexedSlices):
    return tf.IndexedSlices(tf.identity(gradient.values), gradient.indices, gradient.dense_shape)
  return None if gradient is None else tf.identity(gradient)
