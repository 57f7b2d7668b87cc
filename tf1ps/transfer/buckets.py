"""Sends gradients to the ps: small gradients concatenated in buckets, float32 gradients narrowed.

A bucket travels as one message: the dense gradients of several small variables of a ps, or the
gradient of a single variable, dense or sparse. In this order:

1. `make_buckets` divides the gradients (flat_buffers.py has the rules).
2. `Bucket.send` concatenates its gradients on the worker, narrows them (wire.py), sends them, and
   widens them on the ps. If the gradients are on a GPU, the buffer is too, and leaves the GPU once.
3. `Bucket.unpack` splits the buffer on the ps, beside the variables.

`pack_gradients` does all three steps for a loop that updates immediately. Synchronous updates keep
the arrived tensor of each bucket on the ps, and unpack it later.
"""

from __future__ import annotations

import hashlib
from typing import Any, Dict, List, Tuple, Union

import tensorflow.compat.v1 as tf

from tf1ps.graph import on_place, place_of_device, place_of_op, task_of_device, task_of_op
from tf1ps.transfer import flat_buffers, wire
from tf1ps.transfer.wire_options import DEFAULT_PACK_BYTES

Gradient = Union[tf.Tensor, tf.IndexedSlices]
GradsAndVars = List[Tuple[Gradient, tf.Variable]]


class Bucket:
  """Gradients that travel as one message.

  Attributes:
    variables: the variables of the gradients.
    op: the operation of the first variable. Place state of the bucket beside this operation.
    device: the device of that operation.
    dtype: the type of the gradients.
    shape: the shape of the arrived tensor; for a sparse gradient, the shape of the variable.
    name: the name of the bucket. Buckets of different variables have different names.
  """

  def __init__(self, grads_and_vars: GradsAndVars, is_flat: bool, wire_dtype: str):
    self._gradients = [gradient for gradient, _ in grads_and_vars]
    self.variables = [variable for _, variable in grads_and_vars]
    self._is_flat, self._wire_dtype = is_flat, wire_dtype
    self._shapes = [variable.shape for variable in self.variables]
    first = self.variables[0]
    self.op, self.device, self.dtype = first.op, first.device, self._gradients[0].dtype
    self.shape = first.shape
    if len(self.variables) > 1:
      self.shape = tf.TensorShape([sum(flat_buffers.lengths(self._shapes, is_flat))] + (
        [] if is_flat else first.shape.as_list()[1:]))
    names = [variable.op.name for variable in self.variables]
    self.name = names[0] if len(names) == 1 else "%s+%d:%s" % (
      names[0], len(names) - 1,
      hashlib.sha256(",".join(names).encode("utf-8")).hexdigest()[:12])

  @property
  def gradient(self) -> Gradient:
    """The first gradient, dense or sparse like the arrived gradient, with the same types."""
    return self._gradients[0]

  @property
  def parts(self) -> List[tf.Tensor]:
    """The tensors of the gradients as they were computed."""
    return [part for gradient in self._gradients for part in (
      [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices)
      else [gradient])]

  def send(self) -> Gradient:
    """Sends the gradients to the ps, once per call; returns the arrived tensor, on the ps.

    You may call it in a branch of `tf.cond`. It creates no constant on the ps, because in a branch
    a constant waits for the condition on the worker, and so costs a message.
    """
    gradient = self._gradients[0]
    if isinstance(gradient, tf.IndexedSlices):
      values = self._send(gradient.values)
      return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if len(self._gradients) == 1:
      return self._send(gradient)
    places = {place_of_op(each.op) for each in self._gradients}
    with on_place(places.pop() if len(places) == 1 else task_of_op(gradient.op)):
      gradient = flat_buffers.concat(self._gradients, self._shapes, self._is_flat)
    return self._send(gradient)

  def unpack(self, arrived: Gradient) -> GradsAndVars:
    """Splits the arrived tensor by variable, or a tensor like it such as the mean of several."""
    if len(self.variables) == 1:
      return [(arrived, self.variables[0])]
    with on_place(place_of_device(self.device)):
      return list(zip(flat_buffers.split(arrived, self._shapes, self._is_flat), self.variables))

  def _send(self, tensor):
    source, target = task_of_op(tensor.op), task_of_device(self.device)
    if source == target:
      return tensor
    is_sparse = isinstance(self._gradients[0], tf.IndexedSlices)
    sizes = () if is_sparse else [shape.num_elements() for shape in self._shapes]
    with on_place(place_of_op(tensor.op)):
      sent = wire.narrow(
        tensor, self._wire_dtype,
        ["the gradient of " + variable.op.name for variable in self.variables], sizes)
    if sent[0] is tensor and len(self._gradients) == 1:
      return tensor
    with on_place(place_of_device(self.device)):
      return wire.widen([tf.identity(part) for part in sent], tensor.dtype, self._wire_dtype,
                        tensor.shape, sizes)


def make_buckets(grads_and_vars: GradsAndVars, pack_bytes: int = DEFAULT_PACK_BYTES,
                 wire_dtype: str = "float32", from_anywhere: bool = False) -> List[Bucket]:
  """Divides gradients into buckets; each gradient is in one bucket.

  Args:
    grads_and_vars: pairs of a gradient and its variable; pairs without a gradient are skipped.
    pack_bytes: gradients of variables of this size or more travel alone; 0: all travel alone.
    wire_dtype: the type that float32 gradients are sent as, one of `WIRE_DTYPES`.
    from_anywhere: True: the buckets do not depend on the tasks of the gradients, even if a gradient
      is on its variable's task. Replicas that wait for each other need the same buckets.

  Raises:
    ValueError: if an argument is out of its range.
  """
  flat_buffers.check_pack_bytes(pack_bytes)
  wire.check_wire_dtype(wire_dtype)
  pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
  by_route: Dict[tuple, List[Any]] = {}
  for index, (gradient, variable) in enumerate(pairs):
    if _may_be_packed(gradient, variable, from_anywhere):
      source = "" if from_anywhere else place_of_op(gradient.op)
      route = source, place_of_device(variable.device), gradient.dtype.name
      by_route.setdefault(route, []).append(index)
  buckets = []
  for members in by_route.values():
    shapes = [pairs[index][1].shape.as_list() for index in members]
    for group in flat_buffers.make_groups(shapes, pairs[members[0]][0].dtype.size, pack_bytes):
      own = [members[index] for index in group.members]
      buckets.append((own[0], Bucket([pairs[index] for index in own], group.is_flat, wire_dtype)))
  packed = {variable.op.name for _, bucket in buckets for variable in bucket.variables}
  buckets += [(index, Bucket([pair], False, wire_dtype)) for index, pair in enumerate(pairs)
              if pair[1].op.name not in packed]
  return [bucket for _, bucket in sorted(buckets, key=lambda item: item[0])]


def pack_gradients(grads_and_vars: GradsAndVars, pack_bytes: int = DEFAULT_PACK_BYTES,
                   wire_dtype: str = "float32") -> GradsAndVars:
  """Sends gradients to the ps. `apply_gradients` of the result updates the variables there.

  The arguments and errors are those of `make_buckets`. Returns the same pairs in the same order;
  pairs without a gradient are unchanged.
  """
  grads_and_vars = list(grads_and_vars)  # it may be a zip
  buckets = make_buckets(grads_and_vars, pack_bytes, wire_dtype)
  with tf.name_scope("push"):
    arrived = {variable.op.name: gradient for bucket in buckets
               for gradient, variable in bucket.unpack(bucket.send())}
  return [(None if gradient is None else arrived[variable.op.name], variable)
          for gradient, variable in grads_and_vars]


def _may_be_packed(gradient, variable, from_anywhere) -> bool:
  """Whether a gradient is dense, has a known shape, and travels, unless it may be from anywhere."""
  if isinstance(gradient, tf.IndexedSlices) or not variable.shape.is_fully_defined():
    return False
  target = task_of_device(variable.device)
  return bool(target) and gradient.dtype.is_floating and (
    from_anywhere or task_of_op(gradient.op) not in ("", target))
