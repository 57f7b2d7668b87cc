"""Where the gradients of one turn wait: a row for each replica, beside the variable.

A replica writes its own row as often as it likes before it says that it has come, so that a push
which is made twice is one push. Nothing is added up before all are there; then

  dense    the rows of those who came are gathered, and their mean is taken
  sparse   their slices are put one behind the other, each divided by how many came: row i of the
           variable gets sum(slices of i) / n, the same mean as that of dense gradients

A ps needs memory for one gradient of each replica.
"""

from __future__ import annotations

from typing import List

import tensorflow.compat.v1 as tf


class DenseRows:
  """The rows of one variable's dense gradients."""

  def __init__(self, variable, dtype, replicas: int, container: str, shared_name: str):
    """Builds the rows in the default graph, on the variable's device.

    Args:
      variable: whose gradients they are, or a parcel of several (transfer/packing.py); its shape is
        fully known.
      dtype: of the gradients.
      replicas: how many there are.
      container: the container of the variable.
      shared_name: under which every replica finds them.
    """
    self.variable = variable
    self._dtype = tf.as_dtype(dtype)
    self._shape = [replicas] + variable.shape.as_list()
    with _beside(variable):
      self._handle = _handle(self._dtype, self._shape, container, "%s:%s:%s" % (
        shared_name, self._dtype.name, "x".join(map(str, self._shape))))

  def is_made(self) -> tf.Tensor:
    """Whether the rows are there, a bool scalar."""
    with _beside(self.variable):
      return tf.raw_ops.VarIsInitializedOp(resource=self._handle)

  def make(self) -> List[tf.Operation]:
    """Makes them, with zeros."""
    with _beside(self.variable):
      return [tf.raw_ops.AssignVariableOp(
        resource=self._handle, value=tf.zeros(self._shape, self._dtype))]

  def push(self, gradient, replica: int) -> List[tf.Operation]:
    """Writes a replica's row."""
    with _beside(self.variable):
      return [tf.raw_ops.ResourceScatterUpdate(
        resource=self._handle, indices=tf.constant([replica]), updates=gradient[tf.newaxis])]

  def mean(self, came: tf.Tensor) -> tf.Tensor:
    """The mean of the rows of those who came, in the order of their indices.

    Args:
      came: int64 vector with a 1 for each of them.
    """
    with _beside(self.variable):
      rows = tf.raw_ops.ResourceGather(
        resource=self._handle, indices=tf.where(tf.equal(came, 1))[:, 0], dtype=self._dtype)
      mean = tf.reduce_mean(rows, axis=0)
      mean.set_shape(self.variable.shape)
      return mean


class SparseRows:
  """The slices of one variable's sparse gradients (tf.IndexedSlices), replica by replica."""

  def __init__(self, variable, gradient: tf.IndexedSlices, replicas: int, container: str,
               shared_name: str):
    """Builds them in the default graph, as `DenseRows`."""
    self.variable = variable
    self._values, self._indices = gradient.values.dtype, gradient.indices.dtype
    self._inner = variable.shape.as_list()[1:]
    name = "%s:%s:%s:%s" % (shared_name, self._values.name, self._indices.name,
                            "x".join(map(str, self._inner)))
    with _beside(variable):
      self._handles = [
        (_handle(self._indices, None, container, "%s:%d:indices" % (name, i)),
         _handle(self._values, None, container, "%s:%d:values" % (name, i)))
        for i in range(replicas)]

  def is_made(self) -> tf.Tensor:
    """Whether the rows are there, a bool scalar."""
    with _beside(self.variable):
      return tf.reduce_all([tf.raw_ops.VarIsInitializedOp(resource=handle)
                            for handles in self._handles for handle in handles])

  def make(self) -> List[tf.Operation]:
    """Makes them, empty."""
    with _beside(self.variable):
      empty = (tf.zeros([0], self._indices), tf.zeros([0] + self._inner, self._values))
      return [tf.raw_ops.AssignVariableOp(resource=handle, value=value)
              for handles in self._handles for handle, value in zip(handles, empty)]

  def push(self, gradient, replica: int) -> List[tf.Operation]:
    """Writes a replica's slices."""
    with _beside(self.variable):
      return [tf.raw_ops.AssignVariableOp(resource=handle, value=value) for handle, value in zip(
        self._handles[replica], (gradient.indices, gradient.values))]

  def mean(self, came: tf.Tensor) -> tf.IndexedSlices:
    """The slices of those who came, divided by how many they are; see `DenseRows.mean`."""
    with _beside(self.variable):
      indices, values = [], []
      for i, (index_handle, value_handle) in enumerate(self._handles):
        index = tf.raw_ops.ReadVariableOp(resource=index_handle, dtype=self._indices)
        value = tf.raw_ops.ReadVariableOp(resource=value_handle, dtype=self._values)
        index.set_shape([None])
        value.set_shape([None] + self._inner)
        size = tf.cast(came[i], tf.int32) * tf.size(index)  # nothing of one that has not come
        indices.append(index[:size])
        values.append(value[:size])
      divisor = tf.cast(tf.reduce_sum(came), self._values)
      return tf.IndexedSlices(tf.concat(values, 0) / divisor, tf.concat(indices, 0),
                              tf.shape(self.variable, out_type=self._indices))


def _beside(variable):
  return tf.get_default_graph().colocate_with(variable.op)


def _handle(dtype, shape, container, shared_name):
  shape = tf.TensorShape(shape)
  return tf.raw_ops.VarHandleOp(
    dtype=dtype, shape=shape, container=container, shared_name=shared_name)
