"""The gradients of a round: a row per replica, beside the variable.

Gradients that travel together, such as those of several small variables (a `Bucket` of
transfer/buckets.py), have rows beside the first of these variables. A replica

1. makes the rows where they do not exist, when it joins;
2. writes its gradients into its own rows before it arrives; a second write of the same values
   changes nothing. If there are spare replicas and the gradients are large, the replica first
   checks whether it is too late, and sends nothing if it is;
3. takes the means, if it is the replica that finishes the round:

  dense    gathers the rows of the replicas that arrived, and takes their mean. If the shape of a
           variable is known only in a run, each row is a separate variable
  sparse   concatenates their slices, each divided by the number n of these replicas: row i of the
           variable gets sum(slices of i) / n, which is the mean of the dense gradients

A ps needs memory for one gradient per replica.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf

from tf1ps.replication import rounds as rounds_lib
from tf1ps.state import sum_dtype
from tf1ps.transfer import Bucket

_SMALL = 1 << 16  # bytes: to send them costs no more than a look at the round


class GradientExchange:
  """The rows of all variables of an optimizer."""

  def __init__(self, buckets: List[Bucket], rounds: rounds_lib.Rounds, shared_name: str):
    """Builds the rows in the default graph; all replicas have the same buckets."""
    self._rounds, self._buckets = rounds, buckets
    # A joining replica also uses the rows. It must not run the operations that a training step
    # depends on.
    with tf.control_dependencies(None):
      self._rows = [self._make_rows(bucket, shared_name) for bucket in buckets]

  def make_where_absent(self) -> List[tf.Operation]:
    """Returns the operations that make the rows where they do not exist."""
    operations = []
    for group in self._by_task():
      with tf.get_default_graph().colocate_with(group[0][0].variable.op):
        operations.append(tf.cond(
          tf.reduce_all([rows.is_made() for rows, _ in group]), lambda: tf.constant(True),
          lambda group=group: _after([op for rows, _ in group for op in rows.make()])).op)
    return operations

  def push(self) -> List[tf.Operation]:
    """Returns the operations that write this replica's rows."""
    rules = self._rounds.rules
    if rules.aggregate == rules.replicas or self._are_small():
      return [self._push()]
    with tf.control_dependencies([part for bucket in self._buckets for part in bucket.parts]):
      is_late = self._rounds.is_late()
    return [tf.cond(is_late, lambda: tf.constant(False), lambda: _after([self._push()])).op]

  def means(self, arrived: tf.Tensor) -> list:
    """Returns [(mean gradient, variable), ...] over the replicas with a 1 in `arrived`."""
    return [pair for bucket, rows in zip(self._buckets, self._rows)
            for pair in bucket.unpack(rows.mean(arrived))]

  def _are_small(self):
    """Whether the gradients are so small that a late replica may send them, too."""
    if not all(isinstance(bucket.gradient, tf.Tensor) and bucket.shape.is_fully_defined()
               for bucket in self._buckets):
      return False
    return sum(bucket.dtype.size * bucket.shape.num_elements()
               for bucket in self._buckets) <= _SMALL

  def _push(self):
    pushed = []
    for group in self._by_task():
      first = group[0][0]
      sent = [bucket.send() for _, bucket in group]  # the sending waits for nothing on the ps
      with tf.get_default_graph().colocate_with(first.variable.op):
        joined = self._rounds.check_joined(first.is_made())
      with tf.control_dependencies([joined]):
        pushed += [op for (rows, _), gradient in zip(group, sent)
                   for op in rows.push(gradient, self._rounds.index)]
    return tf.group(*pushed)

  def _make_rows(self, bucket, shared_name):
    name = "tf1ps.gradients:%s:%s" % (shared_name, bucket.name)
    common = (self._rounds.rules.replicas, self._rounds.container, name)
    if isinstance(bucket.gradient, tf.Tensor) and bucket.shape.is_fully_defined():
      return _DenseRows(bucket, *common)
    return _VectorRows(bucket.variables[0], bucket.gradient, *common)

  def _by_task(self):
    """Returns [(rows, bucket), ...] of each task."""
    groups = {}
    for rows, bucket in zip(self._rows, self._buckets):
      groups.setdefault(rows.variable.device, []).append((rows, bucket))
    return groups.values()


class _DenseRows:
  """The rows of dense gradients of known shapes, on the device of the bucket's variables."""

  def __init__(self, bucket: Bucket, replicas: int, container: str, shared_name: str):
    self.variable = bucket
    self._dtype = tf.as_dtype(bucket.dtype)
    self._shape = [replicas] + bucket.shape.as_list()
    with _beside(bucket):
      self._handle = _handle(self._dtype, self._shape, container, "%s:%s:%s" % (
        shared_name, self._dtype.name, "x".join(map(str, self._shape))))

  def is_made(self) -> tf.Tensor:
    with _beside(self.variable):
      return tf.raw_ops.VarIsInitializedOp(resource=self._handle)

  def make(self) -> List[tf.Operation]:
    with _beside(self.variable):
      return [tf.raw_ops.AssignVariableOp(
        resource=self._handle, value=tf.zeros(self._shape, self._dtype))]

  def push(self, gradient, replica: int) -> List[tf.Operation]:
    with _beside(self.variable):
      return [tf.raw_ops.ResourceScatterUpdate(
        resource=self._handle, indices=tf.constant([replica]), updates=gradient[tf.newaxis])]

  def mean(self, arrived: tf.Tensor) -> tf.Tensor:
    """The mean of the rows whose replicas have a 1, in the order of the replicas."""
    with _beside(self.variable):
      rows = tf.raw_ops.ResourceGather(
        resource=self._handle, indices=tf.where(tf.equal(arrived, 1))[:, 0], dtype=self._dtype)
      return _mean(rows, self._dtype, self.variable.shape)


class _VectorRows:
  """The rows of a variable whose gradients have no known shape: each row is a separate variable.

  A row keeps a dense gradient as a vector, and a sparse gradient as two vectors, its indices and
  values.
  """

  def __init__(self, variable, gradient, replicas: int, container: str, shared_name: str):
    self.variable = variable
    self._is_sparse = isinstance(gradient, tf.IndexedSlices)
    self._dtypes = [part.dtype for part in self._parts(gradient)]
    dims = variable.shape.as_list() if variable.shape.ndims is not None else []
    name = ":".join(
      [shared_name, *(dtype.name for dtype in self._dtypes), "x".join(map(str, dims))])
    with _beside(variable):
      self._handles = [
        [_handle(dtype, None, container, "%s:%d:%d" % (name, replica, part))
         for part, dtype in enumerate(self._dtypes)] for replica in range(replicas)]

  def is_made(self) -> tf.Tensor:
    with _beside(self.variable):
      return tf.reduce_all([tf.raw_ops.VarIsInitializedOp(resource=handle)
                            for handles in self._handles for handle in handles])

  def make(self) -> List[tf.Operation]:
    with _beside(self.variable):
      empty = [tf.zeros([0], dtype) for dtype in self._dtypes]
      return [tf.raw_ops.AssignVariableOp(resource=handle, value=value)
              for handles in self._handles for handle, value in zip(handles, empty)]

  def push(self, gradient, replica: int) -> List[tf.Operation]:
    with _beside(self.variable):
      return [tf.raw_ops.AssignVariableOp(resource=handle, value=value)
              for handle, value in zip(self._handles[replica], self._parts(gradient))]

  def mean(self, arrived: tf.Tensor):
    """The mean of the rows whose replicas have a 1, dense or sparse like the gradients."""
    with _beside(self.variable):
      parts = [
        tf.concat([_if_arrived(arrived[replica], handles[part], dtype)
                   for replica, handles in enumerate(self._handles)], 0)
        for part, dtype in enumerate(self._dtypes)]
      return (self._mean_of_slices if self._is_sparse else self._mean_of_rows)(
        tf.reduce_sum(arrived), *parts)

  def _parts(self, gradient):
    return [gradient.indices, gradient.values] if self._is_sparse else [gradient]

  def _mean_of_rows(self, count, rows):
    shape = tf.shape(self.variable, out_type=tf.int64)
    rows = tf.reshape(rows, tf.concat([count[tf.newaxis], shape], 0))
    return _mean(rows, self._dtypes[0], self.variable.shape)

  def _mean_of_slices(self, count, indices, values):
    shape = tf.shape(self.variable, out_type=indices.dtype)
    slices = tf.concat([tf.shape(indices, out_type=indices.dtype), shape[1:]], 0)
    values = tf.reshape(values, slices)
    values.set_shape(tf.TensorShape([None]).concatenate(self.variable.shape[1:]))
    return tf.IndexedSlices(values / tf.cast(count, values.dtype), indices, shape)


def _beside(variable):
  return tf.get_default_graph().colocate_with(variable.op)


def _handle(dtype, shape, container, shared_name):
  shape = tf.TensorShape(shape)
  return tf.raw_ops.VarHandleOp(
    dtype=dtype, shape=shape, container=container, shared_name=shared_name)


def _mean(rows, dtype, shape) -> tf.Tensor:
  mean = tf.cast(tf.reduce_mean(tf.cast(rows, sum_dtype(dtype)), axis=0), dtype)
  mean.set_shape(shape)
  return mean


def _if_arrived(arrived, handle, dtype) -> tf.Tensor:
  """Returns a replica's row as a vector, which is empty if `arrived` is 0."""
  row = tf.reshape(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype), [-1])
  return row[:arrived * tf.size(row, out_type=tf.int64)]


def _after(operations) -> tf.Tensor:
  with tf.control_dependencies(operations):
    return tf.constant(True)
