"""Sums of a table's rows, made where the rows are, with gradients that are made there too.

For one ps, in order:

1. `sum_rows` gathers the rows of the ids on the ps, multiplies them by their weights, and adds up
   those of each bag: what leaves the ps is [bags, width];
2. in the backward pass the gradient of the sums, [bags, width], comes to the ps; there it is
   expanded to the rows of the ids, as `tf.IndexedSlices` of the variable.

On the way both may be of a narrower type (wire.py).

TensorFlow makes gradients where `compute_gradients` is called, which is the worker: the expanded
rows, [ids, width], would come back and go up. `colocate_gradients_with_ops=True` prevents it, for
all operations of a model at once and only where the caller knows; here the few operations carry
gradient functions that make theirs beside themselves.
"""

from __future__ import annotations

from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.placement import TablePart
from tf1ps.transfer import wire

_GRADIENTS = {
  "GatherV2": "Tf1psGatherHere",
  "ResourceGather": "Tf1psResourceGatherHere",
  "Mul": "Tf1psScaleHere",
  "SparseSegmentSumWithNumSegments": "Tf1psSumHere",
  "AddN": "Tf1psAddHere",
  "Cast": "Tf1psCastHere",
}


def sum_rows(parts: List[TablePart], ids: tf.Tensor, bags: tf.Tensor, count,
             weights: Optional[tf.Tensor] = None, wire_dtype: str = "float32",
             what: str = "bags") -> tf.Tensor:
  """Sums rows bag by bag, on the device of the parts.

  Args:
    parts: of a table [rows, width], all on one device, in order.
    ids: of rows of these parts, int32 [ids].
    bags: the bag of each id, int32 [ids], in ascending order.
    count: how many bags there are, a scalar int32.
    weights: of the type of the table, [ids]; None: 1 each.
    wire_dtype: what float32 sums, and their gradient, travel as; see wire.py.
    what: the word for them in an error.

  Returns:
    A tensor [bags, width] of the type of the table; a bag without ids is 0.
  """
  graph = tf.get_default_graph()
  with graph.colocate_with(parts[0].variable.op), graph.gradient_override_map(_GRADIENTS):
    divided, sums = [[ids, bags, weights]], []
    if len(parts) > 1:
      divided = divide(divided[0], part_of(ids, [part.first for part in parts]), len(parts))
    for part, (own_ids, own_bags, own_weights) in zip(parts, divided):
      with graph.colocate_with(part.variable.op):
        rows = tf.gather(part.variable, own_ids - part.first)
        if own_weights is not None:
          rows = tf.multiply(rows, own_weights[:, tf.newaxis])
        sums.append(tf.sparse.segment_sum(
          rows, tf.range(tf.size(own_bags)), own_bags, num_segments=count))
    total = tf.add_n(sums) if len(sums) > 1 else sums[0]
    sent = wire.narrow(total, wire_dtype, ["%s of %s" % (what, parts[0].variable.op.name)])
  with graph.gradient_override_map({"Cast": _NARROW}):
    return wire.widen(sent, total.dtype)


def part_of(ids: tf.Tensor, firsts: List[int]) -> tf.Tensor:
  """The position of the part that holds the row of each id, int32 [ids].

  Args:
    ids: int32 [ids]. One below all goes to the first part, and one above all to the last, where
      the gather refuses it.
    firsts: the first row of each part, ascending.
  """
  return tf.searchsorted(tf.constant(firsts[1:], ids.dtype), ids, side="right")


def divide(tensors: List[Optional[tf.Tensor]], place: tf.Tensor, count: int) -> List[list]:
  """Divides tensors; what goes to one place keeps its order.

  Args:
    tensors: [n] each, or None.
    place: of each element, int32 [n].
    count: how many places there are.

  Returns:
    A list of [a tensor, or None, for each of tensors], one for each place.
  """
  divided = [[None] * count if each is None else tf.dynamic_partition(each, place, count)
             for each in tensors]
  return [list(each) for each in zip(*divided)]


def devices_of(parts: List[TablePart]) -> List[List[TablePart]]:
  """The parts on each device, in order: a list of them for each."""
  by_device = {}
  for part in parts:
    by_device.setdefault(part.variable.device, []).append(part)
  return list(by_device.values())


def by_device(devices: List[list], indices: tf.Tensor,
              tensors: List[Optional[tf.Tensor]]) -> List[list]:
  """Divides tensors by the device that holds the row of each index.

  Args:
    devices: as of `devices_of`.
    indices: int32 [ids].
    tensors: [ids] each, or None.

  Returns:
    As `divide` does, for each device.
  """
  if len(devices) == 1:
    return [tensors]
  firsts = sorted((part.first, place) for place, parts in enumerate(devices) for part in parts)
  part = part_of(indices, [first for first, _ in firsts])
  place = tf.gather([place for _, place in firsts], part)
  return divide(tensors, place, len(devices))


@tf.RegisterGradient(_GRADIENTS["Cast"])
def _cast_gradient(op, gradient):
  """Of the sums, cast for the way: the gradient as it has arrived."""
  with tf.get_default_graph().colocate_with(op):
    return tf.cast(gradient, op.inputs[0].dtype)


_NARROW = "Tf1psNarrow"


@tf.RegisterGradient(_NARROW)
def _widen_gradient(op, gradient):
  """Of sums that have arrived: the gradient, cast for the way to the ps."""
  with tf.get_default_graph().colocate_with(op):
    return wire.narrow(gradient, op.inputs[0].dtype.name, ["the gradient of " + op.name])


@tf.RegisterGradient(_GRADIENTS["GatherV2"])
def _gather_gradient(op, gradient):
  """Of gathered rows: the variable's slices. The inputs are its value, indices, an axis."""
  with tf.get_default_graph().colocate_with(op):
    shape = tf.shape(op.inputs[0], out_type=tf.int64)
    return tf.IndexedSlices(gradient, op.inputs[1], shape), None, None


@tf.RegisterGradient(_GRADIENTS["ResourceGather"])
def _resource_gather_gradient(op, gradient):
  """Of gathered rows: the variable's slices. The inputs are its handle and indices."""
  with tf.get_default_graph().colocate_with(op):
    shape = tf.raw_ops.VariableShape(input=op.inputs[0], out_type=tf.int64)
    return tf.IndexedSlices(gradient, op.inputs[1], shape), None


@tf.RegisterGradient(_GRADIENTS["Mul"])
def _scale_gradient(op, gradient):
  """Of rows [ids, width], scaled by weights [ids, 1]."""
  rows, weights = op.inputs
  with tf.get_default_graph().colocate_with(op):
    return gradient * weights, tf.reduce_sum(gradient * rows, 1, keepdims=True)


@tf.RegisterGradient(_GRADIENTS["SparseSegmentSumWithNumSegments"])
def _sum_gradient(op, gradient):
  """Of the sums: each row of a bag gets the gradient of the bag."""
  with tf.get_default_graph().colocate_with(op):
    return tf.gather(gradient, op.inputs[2]), None, None, None


@tf.RegisterGradient(_GRADIENTS["AddN"])
def _add_gradient(op, gradient):
  """Of the sum over several parts: it comes here once, and not once for each part."""
  with tf.get_default_graph().colocate_with(op):
    return [tf.identity(gradient)] * len(op.inputs)
