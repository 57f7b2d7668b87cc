"""How gradients go up to the ps: small ones together, narrow ones cast.

A *parcel* is what travels as one: the dense gradients of several small variables of one ps, or the
gradient of one variable alone, dense or sparse. In order:

1. `make_parcels` divides the gradients (groups.py says which go together).
2. `Parcel.send` puts its gradients together on the worker, casts them for the way (wire.py), and
   has them arrive on the ps, where they are cast back.
3. `Parcel.unpack` splits them there, each beside its variable.

`pack_gradients` does all of it for a loop that updates at once; whoever lets gradients wait on the
ps keeps what arrived, one tensor a parcel, and unpacks later.
"""

from __future__ import annotations

import hashlib
from typing import List, Sequence, Tuple, Union

import tensorflow.compat.v1 as tf

from tf1ps.transfer import groups, joined, placed, wire

Gradient = Union[tf.Tensor, tf.IndexedSlices]
GradsAndVars = List[Tuple[Gradient, tf.Variable]]


class Bucket:
  """What travels as one.

  Attributes:
    variables: whose gradients it holds.
    op: the operation of the first of them; what belongs to the parcel lives beside it.
    device: of that.
    dtype: of the gradients.
    shape: of what arrives, without the rows of a sparse gradient: that of the variable then.
    name: of the parcel: another one for other variables.
  """

  def __init__(self, grads_and_vars: GradsAndVars, is_flat: bool, wire_dtype: str):
    self._gradients = [gradient for gradient, _ in grads_and_vars]
    self.variables = [variable for _, variable in grads_and_vars]
    self._is_flat = is_flat
    self._wire_dtype = wire_dtype
    self._shapes = [variable.shape for variable in self.variables]
    first = self.variables[0]
    self.op, self.device, self.dtype = first.op, first.device, self._gradients[0].dtype
    self.shape = first.shape
    if len(self.variables) > 1:
      self.shape = tf.TensorShape([sum(joined.lengths(self._shapes, is_flat))] + (
        [] if is_flat else first.shape.as_list()[1:]))
    names = [variable.op.name for variable in self.variables]
    self.name = names[0] if len(names) == 1 else "%s+%d:%s" % (
      names[0], len(names) - 1, _digest(names))

  @property
  def gradient(self) -> Gradient:
    """The first gradient: of the kind and the types of what arrives."""
    return self._gradients[0]

  @property
  def parts(self) -> List[tf.Tensor]:
    """What the gradients are made of, as they were computed."""
    return [part for gradient in self._gradients for part in (
      [gradient.values, gradient.indices] if isinstance(gradient, tf.IndexedSlices)
      else [gradient])]

  def send(self) -> Gradient:
    """Has the gradients arrive on the ps; each call sends them once."""
    gradient = self._gradients[0]
    if isinstance(gradient, tf.IndexedSlices):
      values = self._cross(gradient.values)
      return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    if len(self._gradients) == 1:
      return self._cross(gradient)
    with _on(placed.place_of(gradient.op)):
      gradient = joined.join(self._gradients, self._shapes, self._is_flat)
    return self._cross(gradient)

  def unpack(self, arrived: Gradient) -> GradsAndVars:
    """Divides what arrived, or a tensor like it such as a mean of several, by variable."""
    if len(self.variables) == 1:
      return [(arrived, self.variables[0])]
    with _on(placed.task_of_device(self.device)):
      return list(zip(joined.divide(arrived, self._shapes, self._is_flat), self.variables))

  def _cross(self, tensor):
    source, target = placed.place_of(tensor.op), placed.task_of_device(self.device)
    if source == target:
      return tensor
    sparse = isinstance(self._gradients[0], tf.IndexedSlices)
    with _on(source):
      sent = wire.narrow(
        tensor, self._wire_dtype, ["the gradient of " + one.op.name for one in self.variables],
        () if sparse else [shape.num_elements() for shape in self._shapes])
    if sent is tensor and len(self._gradients) == 1:
      return tensor
    with _on(target):
      return wire.widen(tf.identity(sent), tensor.dtype)


def make_buckets(grads_and_vars: GradsAndVars, pack_bytes: int = groups.DEFAULT_PACK_BYTES,
                 wire_dtype: str = "float32", from_anywhere: bool = False) -> List[Bucket]:
  """Divides gradients into what travels as one.

  Args:
    grads_and_vars: pairs of a gradient and its variable; those without a gradient are passed over.
    pack_bytes: gradients of variables of so many bytes or more travel alone; 0: all do.
    wire_dtype: what float32 gradients are sent as, one of `wire.WIRE_DTYPES`.
    from_anywhere: whether the parcels are the same wherever the gradients are, as replicas need it
      whose gradients wait for one another: also where these are on the variables' own task.

  Returns:
    The parcels; each gradient is in one of them.

  Raises:
    ValueError: arguments out of their range.
  """
  groups.check_pack_bytes(pack_bytes)
  wire.check_wire_dtype(wire_dtype)
  pairs = [(gradient, variable) for gradient, variable in grads_and_vars if gradient is not None]
  by_way = {}
  for index, (gradient, variable) in enumerate(pairs):
    if _may_be_packed(gradient, variable, from_anywhere):
      source = "" if from_anywhere else placed.place_of(gradient.op)
      way = source, placed.task_of_device(variable.device), gradient.dtype.name
      by_way.setdefault(way, []).append(index)
  parcels = []
  for members in by_way.values():
    shapes = [pairs[index][1].shape.as_list() for index in members]
    for group in groups.make_groups(shapes, pairs[members[0]][0].dtype.size, pack_bytes):
      own = [members[index] for index in group.members]
      parcels.append((own[0], Bucket([pairs[index] for index in own], group.is_flat, wire_dtype)))
  together = {variable.op.name for _, parcel in parcels for variable in parcel.variables}
  parcels += [(index, Bucket([pair], False, wire_dtype)) for index, pair in enumerate(pairs)
              if pair[1].op.name not in together]
  return [parcel for _, parcel in sorted(parcels, key=lambda one: one[0])]


def pack_gradients(grads_and_vars: GradsAndVars, pack_bytes: int = groups.DEFAULT_PACK_BYTES,
                   wire_dtype: str = "float32") -> GradsAndVars:
  """Has gradients arrive on the ps: `apply_gradients` of what is returned updates there.

  Args and errors are those of `make_parcels`.

  Returns:
    The same pairs in the same order; those without a gradient as they are.
  """
  grads_and_vars = list(grads_and_vars)  # it may be a zip
  parcels = make_buckets(grads_and_vars, pack_bytes, wire_dtype)
  with tf.name_scope("push"):
    arrived = {variable.op.name: gradient for parcel in parcels
               for gradient, variable in parcel.unpack(parcel.send())}
  return [(None if gradient is None else arrived[variable.op.name], variable)
          for gradient, variable in grads_and_vars]


def _may_be_packed(gradient, variable, from_anywhere) -> bool:
  """Whether it is dense, of a known shape, and travels to its variable, if that matters."""
  if isinstance(gradient, tf.IndexedSlices) or not variable.shape.is_fully_defined():
    return False
  target = placed.task_of_device(variable.device)
  return bool(target) and gradient.dtype.is_floating and (
    from_anywhere or placed.place_of(gradient.op) not in ("", target))


def _digest(names: Sequence[str]) -> str:
  return hashlib.sha256(",".join(names).encode("utf-8")).hexdigest()[:12]


def _on(task):
  """On the CPU of a task; where none is known, wherever it is around."""
  return tf.device(placed.cpu_of(task) if task else "")
