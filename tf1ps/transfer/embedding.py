"""Lookups in a table on the ps, of which little travels.

The table is a variable [rows, width] on one ps, or a partitioned one with its rows on several:
`tf.get_variable` with a partitioner along axis 0 (placement/partitioning.py).

`embedding_lookup` is TensorFlow's: each ps gathers the rows that it holds, and they travel, [ids,
width]; their gradients go up likewise. With unique=True an id that is there many times travels
once: the worker finds the different ids, and adds up the gradients of equal ones. Where rows travel
as a narrower type, a lookup is one of bags with an id each.

`embedding_lookup_sparse` looks up bags, as TensorFlow's does: each example has some ids, and the
sum or mean of their rows is wanted. What happens to a batch:

1. The worker says to each ps which of its rows go into which bag.
2. Each ps sums its part of each bag: [batch, width] travels, whatever the number of ids.
3. The worker adds up what came from the ps, and divides by the number of ids or by the weights.
4. The gradient, [batch, width], goes up to each ps, which expands it to its rows.

TensorFlow's own embedding_lookup_sparse has the different rows of all ids travel to the worker.
"""

from __future__ import annotations

from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.placement import TablePart, parts_of_table
from tf1ps.transfer import bag_sums, wire

COMBINERS = ("mean", "sum", "sqrtn")
_ROWS = 2 ** 31  # from so many on an index is no int32


def embedding_lookup(params, ids, unique: bool = False, name: Optional[str] = None,
                     wire_dtype: Optional[str] = None) -> tf.Tensor:
  """Looks up rows, as `tf.nn.embedding_lookup` does with the strategy that fits the partition.

  Args:
    params: the table.
    ids: a tensor of int32 or int64, of any shape.
    unique: whether a row travels once for all equal ids. It pays where many ids of a batch are
      equal; where few are, finding that out costs more.
    name: of the operations.
    wire_dtype: "float32", "bfloat16" or "float16": what the rows of a float32 table, and their
      gradients, travel as. None: as the flag --wire_dtype says, or float32.

  Returns:
    A tensor [shape of ids] + [width].

  Raises:
    TypeError, ValueError: see `parts_of_table`; an unknown `wire_dtype`, or a narrower one
      for a table of 2 ** 31 rows or more; ids of another type.
  """
  parts = parts_of_table(params)
  wire_dtype = _wire_dtype(wire_dtype)
  with tf.name_scope(name, "embedding_lookup"):
    ids = _checked(tf.convert_to_tensor(ids), "ids")
    if not unique:
      return _rows(params, parts, ids, wire_dtype)
    different, positions = tf.unique(tf.reshape(ids, [-1]))
    rows = _rows(params, parts, different, wire_dtype)
    with tf.get_default_graph().gradient_override_map({"GatherV2": _SPREAD}):
      spread = tf.gather(rows, positions)
    return _shaped(spread, ids, params)


def embedding_lookup_sparse(params, sp_ids, sp_weights=None, *, combiner: str = "mean",
                            padding_id: Optional[int] = None, wire_dtype: Optional[str] = None,
                            name: Optional[str] = None) -> tf.Tensor:
  """Looks up the combined rows of each bag of ids; they are summed where they are.

  Args:
    params: the table, [rows, width].
    sp_ids: int32 or int64, as a `tf.SparseTensor` [batch, any] in the order of its rows, or as a
      dense tensor [batch, ids].
    sp_weights: None: 1 each; else of the same kind as `sp_ids`, in the same places.
    combiner: "sum": the sum of the rows times weights; "mean": that divided by the sum of the
      weights; "sqrtn": by the square root of the sum of their squares.
    padding_id: in a dense `sp_ids`, the id that stands for none.
    wire_dtype: "float32", "bfloat16" or "float16": what the bags of a float32 table, and their
      gradients, travel as. None: as the flag --wire_dtype says, or float32.
    name: of the operations.

  Returns:
    A tensor [batch, width], also where the last bags are empty; an empty bag is 0.

  Raises:
    TypeError, ValueError: see `parts_of_table`; a table that is no matrix, or arguments that
      do not fit each other.
  """
  if combiner not in COMBINERS:
    raise ValueError("combiner must be one of %s, got %r" % (", ".join(COMBINERS), combiner))
  parts = parts_of_table(params)
  shape = params.get_shape()
  if shape.rank != 2 or shape.as_list()[0] >= _ROWS:
    raise ValueError("bags need a table [rows, width] of less than 2 ** 31 rows, and %s has the "
                     "shape %s" % (params.name, shape))
  if sp_weights is not None and (
      isinstance(sp_weights, tf.SparseTensor) != isinstance(sp_ids, tf.SparseTensor)):
    raise TypeError("sp_weights must be of the same kind as sp_ids, a SparseTensor or a dense "
                    "tensor, got %r for %r" % (sp_weights, sp_ids))
  if padding_id is not None and isinstance(sp_ids, tf.SparseTensor):
    raise ValueError("padding_id=%r is for dense ids: a SparseTensor has none that stand for "
                     "nothing" % (padding_id,))
  wire_dtype = _wire_dtype(wire_dtype)
  with tf.name_scope(name, "embedding_lookup_sparse"):
    devices, shape = bag_sums.devices_of(parts), shape.as_list()
    if isinstance(sp_ids, tf.SparseTensor):
      _checked(sp_ids.values, "sp_ids")
      return _lookup_sparse(devices, shape, sp_ids, sp_weights, combiner, wire_dtype)
    return _lookup_dense(devices, shape, sp_ids, sp_weights, combiner, padding_id, wire_dtype)


def _wire_dtype(given: Optional[str]) -> str:
  wire_dtype = wire.in_use() if given is None else given
  wire.check_wire_dtype(wire_dtype)
  return wire_dtype


def _rows(params, parts: List[TablePart], ids: tf.Tensor, wire_dtype: str) -> tf.Tensor:
  """The rows of ids of any shape, and on the way of the type that was asked for."""
  count = params.get_shape().as_list()[0]
  if not wire.is_narrowed(params.dtype.base_dtype, wire_dtype):
    return tf.nn.embedding_lookup(params, ids, partition_strategy="div")
  if count >= _ROWS:
    raise ValueError(
      "rows can travel as %s from a table of less than 2 ** 31 rows, and %s has %d: say "
      'wire_dtype="float32"' % (wire_dtype, params.name, count))
  indices = tf.reshape(_as_int32(ids, count), [-1])
  places = tf.range(tf.size(indices))
  own_places, rows = [], []
  devices = bag_sums.devices_of(parts)
  for own, (own_indices, own_place) in zip(devices, bag_sums.by_device(devices, indices, [
      indices, places])):
    with tf.get_default_graph().colocate_with(own[0].variable.op):
      size = tf.size(own_indices)
      bags = tf.range(size)
    rows.append(bag_sums.sum_rows(own, own_indices, bags, size, None, wire_dtype, "rows"))
    own_places.append(own_place)
  found = rows[0] if len(rows) == 1 else tf.dynamic_stitch(own_places, rows)
  return _shaped(found, ids, params)


def _shaped(rows: tf.Tensor, ids: tf.Tensor, params) -> tf.Tensor:
  width = params.get_shape()[1:]
  rows = tf.reshape(rows, tf.concat([tf.shape(ids), width.as_list()], 0))
  rows.set_shape(ids.shape.concatenate(width))
  return rows


def _lookup_dense(devices: List[list], shape, ids, weights, combiner, padding_id,
                  wire_dtype) -> tf.Tensor:
  """Looks up bags of ids [batch, ids]; `devices` has the parts of the table on each device."""
  ids = _checked(tf.convert_to_tensor(ids), "sp_ids")
  if ids.shape.rank != 2:
    raise ValueError("dense sp_ids must have the shape [batch, ids], got %s" % ids.shape)
  weights = None if weights is None else tf.convert_to_tensor(weights)
  if weights is not None and not weights.shape.is_compatible_with(ids.shape):
    raise ValueError("sp_weights must have the shape of sp_ids, %s, got %s" % (
      ids.shape, weights.shape))
  if len(devices) > 1 or padding_id is not None or weights is not None:
    return _lookup_sparse(
      devices, shape, _as_sparse(ids, ids, padding_id), weights if weights is None else
      _as_sparse(weights, ids, padding_id), combiner, wire_dtype)
  ids = _as_int32(ids, shape[0])
  parts, = devices
  with tf.get_default_graph().colocate_with(parts[0].variable.op):  # so that only the ids travel
    batch, size = tf.unstack(tf.shape(ids))
    numbers = tf.range(batch * size) // size
    ids_in_order = tf.reshape(ids, [-1])
  sums = bag_sums.sum_rows(parts, ids_in_order, numbers, batch, None, wire_dtype)
  sums.set_shape([ids.shape[0], shape[1]])
  if combiner == "sum":
    return sums
  divisor = tf.cast(tf.shape(ids)[1], sums.dtype)
  return tf.math.divide_no_nan(sums, divisor if combiner == "mean" else tf.sqrt(divisor))


def _lookup_sparse(devices: List[list], shape, ids, weights, combiner, wire_dtype) -> tf.Tensor:
  """Looks up bags of a SparseTensor's ids."""
  count = tf.cast(ids.dense_shape[0], tf.int32)
  numbers = tf.cast(ids.indices[:, 0], tf.int32)
  indices = _as_int32(ids.values, shape[0])
  weights = None if weights is None else tf.cast(
    weights.values, devices[0][0].variable.dtype.base_dtype)
  sums = []
  for parts, own in zip(devices, bag_sums.by_device(devices, indices, [indices, numbers, weights])):
    own_indices, own_numbers, own_weights = own
    message = tf.concat([own_indices, own_numbers, [count]], 0)  # three would be three messages
    with tf.get_default_graph().colocate_with(parts[0].variable.op):
      own_indices, own_numbers = tf.split(message[:-1], 2)
      own_count = message[-1]
    sums.append(bag_sums.sum_rows(
      parts, own_indices, own_numbers, own_count, own_weights, wire_dtype))
  total = tf.add_n(sums) if len(sums) > 1 else sums[0]
  total.set_shape([tf.get_static_value(count), shape[1]])
  if combiner == "sum":
    return total
  weights = tf.ones(tf.shape(numbers), total.dtype) if weights is None else weights
  divisor = tf.math.unsorted_segment_sum(
    weights if combiner == "mean" else tf.square(weights), numbers, count)
  divisor = divisor if combiner == "mean" else tf.sqrt(divisor)
  return tf.math.divide_no_nan(total, divisor[:, tf.newaxis])


def _checked(ids: tf.Tensor, name: str) -> tf.Tensor:
  """The ids; a float would silently become the row below it."""
  if ids.dtype not in (tf.int32, tf.int64):
    raise TypeError("%s must be int32 or int64, got %s" % (name, ids.dtype.name))
  return ids


def _as_sparse(values, ids, padding_id) -> tf.SparseTensor:
  """The values [batch, ids] where the ids are not the padding."""
  places = (tf.ones(tf.shape(ids), tf.bool) if padding_id is None else
            tf.not_equal(ids, tf.cast(padding_id, ids.dtype)))
  return tf.SparseTensor(
    tf.where(places), tf.boolean_mask(values, places), tf.shape(ids, out_type=tf.int64))


def _as_int32(ids, rows: int) -> tf.Tensor:
  """The ids in half the bytes; what is no row of the table stays none, and is refused there."""
  if ids.dtype == tf.int64:
    ids = tf.clip_by_value(ids, tf.constant(-1, tf.int64), tf.constant(rows, tf.int64))
  return tf.cast(ids, tf.int32)


_SPREAD = "Tf1psAddEqual"


@tf.RegisterGradient(_SPREAD)
def _spread_gradient(op, gradient):
  """Of rows that were given to several ids: the sum of the gradients of these, made here."""
  with tf.get_default_graph().colocate_with(op):
    return tf.math.unsorted_segment_sum(
      gradient, op.inputs[1], tf.shape(op.inputs[0])[0]), None, None
