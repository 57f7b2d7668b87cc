"""Looks up rows of a table on the ps with little traffic.

The table is a variable [rows, width] on one ps, or a partitioned variable with rows on several ps:
`tf.get_variable` with a partitioner along axis 0 (placement/partitioning.py).

`embedding_lookup` works like TensorFlow's function: each ps gathers its rows, and [ids, width]
travels. The gradients travel back in the same form. With unique=True a row travels once for all
equal ids: the worker finds the different ids, and sums the gradients of equal ids. If rows travel
as a narrower type, the function looks up bags that have a single id each.

`embedding_lookup_sparse` looks up bags, like TensorFlow's function: each example has some ids, and
gets the sum or mean of their rows. For each batch, in this order:

1. The worker sends to each ps which of its rows belong to which bag.
2. Each ps sums its part of each bag (`_sum_rows`). [batch, width] travels, for any number of ids.
3. The worker adds the sums of all ps, and divides by the number of ids or by the weights.
4. The gradient, [batch, width], travels to each ps. The ps expands it to the rows of the ids, as
   `tf.IndexedSlices` of the variable.

TensorFlow's own embedding_lookup_sparse sends the different rows of all ids to the worker. Its
gradients are built where `compute_gradients` is called, on the worker, so expanded rows,
[ids, width], would travel. `colocate_gradients_with_ops=True` prevents that, but it affects all
operations of a model. So the few operations here have gradient functions that build the gradients
on the device of the operation.

Sums and gradients may travel as a narrower type (wire.py).
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Union

import tensorflow.compat.v1 as tf

from tf1ps.placement import TablePart, parts_of_table
from tf1ps.transfer import wire

COMBINERS = ("mean", "sum", "sqrtn")
_ROWS = 2 ** 31  # an index of a larger table does not fit into int32
_GRADIENTS = {
  "GatherV2": "Tf1psGatherHere",
  "ResourceGather": "Tf1psResourceGatherHere",
  "Mul": "Tf1psScaleHere",
  "SparseSegmentSumWithNumSegments": "Tf1psSumHere",
  "AddN": "Tf1psAddHere",
  "Cast": "Tf1psCastHere",
}
_NARROW = "Tf1psNarrow"
_SPREAD = "Tf1psAddEqual"


def embedding_lookup(params: Any, ids: tf.Tensor, unique: bool = False,
                     name: Optional[str] = None, wire_dtype: Optional[str] = None) -> tf.Tensor:
  """Looks up rows, as `tf.nn.embedding_lookup` does with the strategy that fits the partition.

  Args:
    params: the table.
    ids: a tensor of int32 or int64, of any shape.
    unique: whether a row travels once for all equal ids. This saves time if many ids of a batch are
      equal. If few ids are equal, finding them costs more than it saves.
    name: the name scope of the operations.
    wire_dtype: the type that the rows of a float32 table and their gradients travel as, one of
      `WIRE_DTYPES` except "int8". None: the value of --wire_dtype, with "float32" for int8.

  Returns:
    A tensor [shape of ids] + [width].

  Raises:
    TypeError: if `params` is not a table (see `parts_of_table`) or `ids` are not int32 or int64.
    ValueError: see `parts_of_table`; if `wire_dtype` is unknown, or narrows a table of 2 ** 31 rows
      or more.
  """
  parts = parts_of_table(params)
  wire_dtype = wire.lookup_wire_dtype(wire_dtype)
  with tf.name_scope(name, "embedding_lookup"):
    ids = _checked(tf.convert_to_tensor(ids), "ids")
    if not unique:
      return _rows(params, parts, ids, wire_dtype)
    different, positions = tf.unique(tf.reshape(ids, [-1]))
    rows = _rows(params, parts, different, wire_dtype)
    with tf.get_default_graph().gradient_override_map({"GatherV2": _SPREAD}):
      spread = tf.gather(rows, positions)
    return _shaped(spread, ids, params)


def embedding_lookup_sparse(params: Any, sp_ids: Union[tf.SparseTensor, tf.Tensor],
                            sp_weights: Union[tf.SparseTensor, tf.Tensor, None] = None, *,
                            combiner: str = "mean", padding_id: Optional[int] = None,
                            wire_dtype: Optional[str] = None,
                            name: Optional[str] = None) -> tf.Tensor:
  """Looks up the combined rows of each bag of ids. Each ps sums its own rows.

  Args:
    params: the table, [rows, width].
    sp_ids: int32 or int64, as a `tf.SparseTensor` [batch, any] in the order of its rows, or as a
      dense tensor [batch, ids].
    sp_weights: the weight of each id, a tensor of the kind and shape of `sp_ids`; None: 1 each.
    combiner: "sum": the sum of the rows times weights; "mean": the sum divided by the sum of the
      weights; "sqrtn": the sum divided by the square root of the sum of the squared weights.
    padding_id: the id in a dense `sp_ids` that marks an empty place.
    wire_dtype, name: as for `embedding_lookup`.

  Returns:
    A tensor [batch, width], even if the last bags are empty. The row of an empty bag is 0.

  Raises:
    TypeError: if `params` is not a table (see `parts_of_table`); ids or weights have a wrong type.
    ValueError: see `parts_of_table`; if the table is not a matrix, or arguments do not match.
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
    raise ValueError("padding_id=%r is for dense ids. Do not give it with a SparseTensor" % (
      padding_id,))
  wire_dtype = wire.lookup_wire_dtype(wire_dtype)
  with tf.name_scope(name, "embedding_lookup_sparse"):
    devices, shape = _devices_of(parts), shape.as_list()
    if isinstance(sp_ids, tf.SparseTensor):
      _checked(sp_ids.values, "sp_ids")
      return _lookup_sparse(devices, shape, sp_ids, sp_weights, combiner, wire_dtype)
    return _lookup_dense(devices, shape, sp_ids, sp_weights, combiner, padding_id, wire_dtype)


def _rows(params, parts: List[TablePart], ids: tf.Tensor, wire_dtype: str) -> tf.Tensor:
  """Returns the rows of ids of any shape, which travel as the wire type."""
  count = params.get_shape().as_list()[0]
  if not wire.is_narrowed(params.dtype.base_dtype, wire_dtype):
    return tf.nn.embedding_lookup(params, ids, partition_strategy="div")
  if count >= _ROWS:
    raise ValueError(
      "rows travel as %s only from a table of less than 2 ** 31 rows, and %s has %d. Give "
      'wire_dtype="float32"' % (wire_dtype, params.name, count))
  indices = tf.reshape(_as_int32(ids, count), [-1])
  places = tf.range(tf.size(indices))
  own_places, rows = [], []
  devices = _devices_of(parts)
  for own, (own_indices, own_place) in zip(devices, _by_device(devices, indices, [
      indices, places])):
    with tf.get_default_graph().colocate_with(own[0].variable.op):
      size = tf.size(own_indices)
      bags = tf.range(size)
    rows.append(_sum_rows(own, own_indices, bags, size, None, wire_dtype, "rows"))
    own_places.append(own_place)
  all_rows = rows[0] if len(rows) == 1 else tf.dynamic_stitch(own_places, rows)
  return _shaped(all_rows, ids, params)


def _shaped(rows: tf.Tensor, ids: tf.Tensor, params) -> tf.Tensor:
  width = params.get_shape()[1:]
  rows = tf.reshape(rows, tf.concat([tf.shape(ids), width.as_list()], 0))
  rows.set_shape(ids.shape.concatenate(width))
  return rows


def _lookup_dense(devices: List[list], shape, ids, weights, combiner, padding_id,
                  wire_dtype) -> tf.Tensor:
  """Looks up bags of ids [batch, ids]. `devices` has the parts of the table on each device."""
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
  sums = _sum_rows(parts, ids_in_order, numbers, batch, None, wire_dtype)
  sums.set_shape([ids.shape[0], shape[1]])
  if combiner == "sum":
    return sums
  divisor = tf.cast(tf.shape(ids)[1], sums.dtype)
  return tf.math.divide_no_nan(sums, divisor if combiner == "mean" else tf.sqrt(divisor))


def _lookup_sparse(devices: List[list], shape, ids, weights, combiner, wire_dtype) -> tf.Tensor:
  """Looks up the bags of a SparseTensor."""
  count = tf.cast(ids.dense_shape[0], tf.int32)
  numbers = tf.cast(ids.indices[:, 0], tf.int32)
  indices = _as_int32(ids.values, shape[0])
  weights = None if weights is None else tf.cast(
    weights.values, devices[0][0].variable.dtype.base_dtype)
  sums = []
  for parts, own in zip(devices, _by_device(devices, indices, [indices, numbers, weights])):
    own_indices, own_numbers, own_weights = own
    message = tf.concat([own_indices, own_numbers, [count]], 0)  # 1 message, not 3
    with tf.get_default_graph().colocate_with(parts[0].variable.op):
      own_indices, own_numbers = tf.split(message[:-1], 2)
      own_count = message[-1]
    sums.append(_sum_rows(parts, own_indices, own_numbers, own_count, own_weights, wire_dtype))
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
  """Returns the ids. A float id would silently be rounded down."""
  if ids.dtype not in (tf.int32, tf.int64):
    raise TypeError("%s must be int32 or int64, got %s" % (name, ids.dtype.name))
  return ids


def _as_sparse(values, ids, padding_id) -> tf.SparseTensor:
  """Returns the values [batch, ids] of ids that are not the padding."""
  places = (tf.ones(tf.shape(ids), tf.bool) if padding_id is None else
            tf.not_equal(ids, tf.cast(padding_id, ids.dtype)))
  return tf.SparseTensor(
    tf.where(places), tf.boolean_mask(values, places), tf.shape(ids, out_type=tf.int64))


def _as_int32(ids, rows: int) -> tf.Tensor:
  """Casts ids, which halves their bytes. An id outside of the table remains an invalid id."""
  if ids.dtype == tf.int64:
    ids = tf.clip_by_value(ids, tf.constant(-1, tf.int64), tf.constant(rows, tf.int64))
  return tf.cast(ids, tf.int32)


def _sum_rows(parts: List[TablePart], ids: tf.Tensor, bags: tf.Tensor, count,
             weights: Optional[tf.Tensor] = None, wire_dtype: str = "float32",
             noun: str = "bags") -> tf.Tensor:
  """Sums the rows of each bag, on the device of the parts, and sends the sums.

  Args:
    parts: parts of a table [rows, width], all on one device, in order.
    ids: rows of these parts, int32 [ids].
    bags: the bag of each id, int32 [ids], in ascending order.
    count: the number of bags, a scalar int32.
    weights: the weight of each id, of the type of the table, [ids]; None: 1 each.
    wire_dtype: the type that float32 sums and their gradient travel as.
    noun: the word for the sums in an error.

  Returns:
    A tensor [bags, width] of the type of the table. A bag without ids is 0.
  """
  graph = tf.get_default_graph()
  with graph.colocate_with(parts[0].variable.op), graph.gradient_override_map(_GRADIENTS):
    divided, sums = [[ids, bags, weights]], []
    if len(parts) > 1:
      divided = _divide(divided[0], _part_of(ids, [part.first for part in parts]), len(parts))
    for part, (own_ids, own_bags, own_weights) in zip(parts, divided):
      with graph.colocate_with(part.variable.op):
        rows = tf.gather(part.variable, own_ids - part.first)
        if own_weights is not None:
          rows = tf.multiply(rows, own_weights[:, tf.newaxis])
        sums.append(tf.sparse.segment_sum(
          rows, tf.range(tf.size(own_bags)), own_bags, num_segments=count))
    total = tf.add_n(sums) if len(sums) > 1 else sums[0]
    sent = wire.narrow(total, wire_dtype, ["%s of %s" % (noun, parts[0].variable.op.name)])
  with graph.gradient_override_map({"Cast": _NARROW}):
    return wire.widen(sent, total.dtype, wire_dtype)


def _part_of(ids: tf.Tensor, firsts: List[int]) -> tf.Tensor:
  """Returns the index of the part that has the row of each id, int32 [ids].

  `firsts` has the first row of each part, ascending. An id below all rows belongs to the first part
  and an id above all rows to the last part. The gather of that part refuses such an id.
  """
  return tf.searchsorted(tf.constant(firsts[1:], ids.dtype), ids, side="right")


def _divide(tensors: List[Optional[tf.Tensor]], place: tf.Tensor, count: int) -> List[list]:
  """Divides tensors [n], or None, over `count` places by the place of each element, int32 [n].

  Elements of a place keep their order. Returns a list for each place, with a tensor or None for
  each of `tensors`.
  """
  divided = [[None] * count if each is None else tf.dynamic_partition(each, place, count)
             for each in tensors]
  return [list(each) for each in zip(*divided)]


def _devices_of(parts: List[TablePart]) -> List[List[TablePart]]:
  """Returns a list for each device with its parts, in order."""
  by_device: Dict[str, List[TablePart]] = {}
  for part in parts:
    by_device.setdefault(part.variable.device, []).append(part)
  return list(by_device.values())


def _by_device(devices: List[list], indices: tf.Tensor,
              tensors: List[Optional[tf.Tensor]]) -> List[list]:
  """Divides tensors [ids] by the device with the row of each index; returns them like `_divide`."""
  if len(devices) == 1:
    return [tensors]
  firsts = sorted((part.first, place) for place, parts in enumerate(devices) for part in parts)
  part = _part_of(indices, [first for first, _ in firsts])
  place = tf.gather([place for _, place in firsts], part)
  return _divide(tensors, place, len(devices))


@tf.RegisterGradient(_GRADIENTS["Cast"])
def _cast_gradient(op, gradient):
  """Widens the arrived gradient of sums that were narrowed."""
  with tf.get_default_graph().colocate_with(op):
    return tf.cast(gradient, op.inputs[0].dtype)


@tf.RegisterGradient(_NARROW)
def _widen_gradient(op, gradient):
  """Narrows the gradient of arrived sums before it travels to the ps."""
  with tf.get_default_graph().colocate_with(op):
    return wire.narrow(gradient, op.inputs[0].dtype.name, ["the gradient of " + op.name])[0]


@tf.RegisterGradient(_GRADIENTS["GatherV2"])
def _gather_gradient(op, gradient):
  """Makes slices of the variable. The inputs are its value, the indices and an axis."""
  with tf.get_default_graph().colocate_with(op):
    shape = tf.shape(op.inputs[0], out_type=tf.int64)
    return tf.IndexedSlices(gradient, op.inputs[1], shape), None, None


@tf.RegisterGradient(_GRADIENTS["ResourceGather"])
def _resource_gather_gradient(op, gradient):
  """Makes slices of the variable. The inputs are its handle and the indices."""
  with tf.get_default_graph().colocate_with(op):
    shape = tf.raw_ops.VariableShape(input=op.inputs[0], out_type=tf.int64)
    return tf.IndexedSlices(gradient, op.inputs[1], shape), None


@tf.RegisterGradient(_GRADIENTS["Mul"])
def _scale_gradient(op, gradient):
  """Computes the gradients of rows [ids, width] and of weights [ids, 1]."""
  rows, weights = op.inputs
  with tf.get_default_graph().colocate_with(op):
    return gradient * weights, tf.reduce_sum(gradient * rows, 1, keepdims=True)


@tf.RegisterGradient(_GRADIENTS["SparseSegmentSumWithNumSegments"])
def _sum_gradient(op, gradient):
  """Gives each row of a bag the gradient of the bag."""
  with tf.get_default_graph().colocate_with(op):
    return tf.gather(gradient, op.inputs[2]), None, None, None


@tf.RegisterGradient(_GRADIENTS["AddN"])
def _add_gradient(op, gradient):
  """Brings the gradient of the sum over several parts to this device once, not once per part."""
  with tf.get_default_graph().colocate_with(op):
    return [tf.identity(gradient)] * len(op.inputs)


@tf.RegisterGradient(_SPREAD)
def _spread_gradient(op, gradient):
  """Sums the gradients of equal ids on the worker."""
  with tf.get_default_graph().colocate_with(op):
    return tf.math.unsorted_segment_sum(
      gradient, op.inputs[1], tf.shape(op.inputs[0])[0]), None, None
