"""Copies of a part of a graph, within the same graph.

What some tensors or operations need is copied, with what they need in turn, up to what is kept
between runs:

1. Shared by all copies: variables, queues, iterators, tables and whatever else is a handle;
   placeholders; constants.
2. Copied: everything else, with devices and control edges; also what has a state of its own, as the
   drawing of a batch, an assertion, or a call of Python. An operation that draws random numbers
   from a seed draws others in each copy.
3. Loops get frames of their own.

The definition of the part is made once, and each copy is one import of it, which is quick: the
graph of a model of 200 variables has several thousand operations.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.transfer import frames

_PLACEHOLDERS = frozenset(["Placeholder", "PlaceholderV2", "PlaceholderWithDefault"])
# Handles that live no longer than a run: each copy needs its own.
_OF_A_RUN = ("TensorArray", "Stack", "TemporaryVariable")
_TABLES_WITH_INPUTS = frozenset(["MutableDenseHashTable", "MutableDenseHashTableV2"])
_NAMES_IN_A_RUN = ("frame_name", "var_name")  # attributes: names that no two copies may share


def ops_of(items: Any) -> List[tf.Operation]:
  """The operations of tensors, operations, sparse gradients, or lists and dicts of them."""
  return [leaf if isinstance(leaf, tf.Operation) else leaf.op
          for leaf in tf.nest.flatten(items, expand_composites=True) if leaf is not None]


def is_handle(op: tf.Operation) -> bool:
  """Whether an operation stands for something that outlives a run, such as a variable."""
  if op.type.startswith(_OF_A_RUN) or op.type not in _TABLES_WITH_INPUTS and len(op.inputs):
    return False
  return any(is_handle_type(tensor) for tensor in op.outputs)


def is_handle_type(tensor: tf.Tensor) -> bool:
  """Whether a tensor stands for something with a state: a resource, or a ref."""
  return tensor.dtype == tf.resource or tensor.dtype != tensor.dtype.base_dtype


def is_shared(op: tf.Operation) -> bool:
  """Whether all copies use this very operation."""
  if is_handle(op):  # one that waits for something can be had without, if it has a name
    return not (op.control_inputs and op.node_def.attr["shared_name"].s)
  return op.type in _PLACEHOLDERS or not (
    len(op.inputs) or op.control_inputs or op.op_def.is_stateful)


class Copy:
  """A copy of a part.

  Attributes:
    ops: the copies of the part's operations, by the names of the originals.
  """

  def __init__(self, ops: Dict[str, tf.Operation], inputs: Dict[str, tf.Tensor]):
    self.ops = ops
    self._inputs = inputs

  def of(self, items: Any) -> Any:
    """The copies of tensors, operations, sparse gradients, or of a structure of them.

    What is shared, and None, stands for itself.
    """
    leaves = tf.nest.flatten(items, expand_composites=True)
    return tf.nest.pack_sequence_as(items, [self._one(leaf) for leaf in leaves],
                                    expand_composites=True)

  def _one(self, leaf):
    if isinstance(leaf, tf.Operation):
      return self.ops.get(leaf.name, leaf)
    if leaf is None or not tf.is_tensor(leaf):
      return leaf
    if leaf.name in self._inputs:
      return self._inputs[leaf.name]
    op = self.ops.get(leaf.op.name)
    return leaf if op is None else op.outputs[leaf.value_index]


class Part:
  """A part of a graph, to be copied.

  Attributes:
    ops: the operations that are copied, in the order in which they were built.
  """

  def __init__(self, fetches: Any, without: Iterable[tf.Operation] = ()):
    """Finds the part.

    Args:
      fetches: tensors, operations, sparse gradients, or a structure of them.
      without: operations at which the part ends too. Each copy has them replaced, or uses them.
    """
    wanted = ops_of(fetches)
    if not wanted:
      raise ValueError("fetches must be tensors or operations, got %r" % (fetches,))
    self._graph = wanted[0].graph
    self._ends = {op.name for op in without}
    found = self._closure(wanted)
    self.ops = [op for op in self._graph.get_operations() if op.name in found]
    self._inputs = {}
    self._definition = self._define(found)

  def before(self, begins: Iterable[tf.Operation], end: tf.Operation) -> List[tf.Operation]:
    """The end, and what of the part depends on operations where it begins and not on the end.

    What only waits for them, and is needed behind the end, is not among it: a constant that was
    made in `tf.control_dependencies`.

    Raises:
      ValueError: what is computed of them is needed behind the end.
    """
    begun, behind = {op.name for op in begins}, {end.name}
    computed = set(begun)
    for op in frames.in_order(self.ops):
      above = {one.name for one in frames.before(op)}
      if op.name not in behind and above & behind:
        behind.add(op.name)
      elif above & begun:
        begun.add(op.name)
        if computed & {tensor.op.name for tensor in op.inputs}:
          computed.add(op.name)
    found = begun - behind
    waiting = [op for op in self.ops if op.name not in found and op.name != end.name]
    while waiting:
      op = waiting.pop()
      for needed in [tensor.op for tensor in op.inputs]:
        if needed.name in found and needed.name in computed:
          raise ValueError("%s needs %s of the first batch alone, which is not there any more "
                           "where the data end within a step" % (op.name, needed.name))
        if needed.name in found:
          found.remove(needed.name)
          waiting.append(needed)
    return [op for op in self.ops if op.name == end.name or op.name in found]

  def copy(self, name: str, number: int = 0,
           replace: Optional[Copy] = None,
           inputs: Optional[Dict[str, tf.Tensor]] = None,
           waits: Optional[Dict[str, Sequence[tf.Tensor]]] = None) -> Copy:
    """Makes a copy, in the scope of names that is in force, and in no scope of devices.

    Args:
      name: the scope of the names of the copied operations.
      number: of the copy; those of one number draw the same random values from a seed.
      replace: a copy of a part that was left out of this one, to be used by this copy.
      inputs: by its name, what stands in the place of a tensor from outside of the part.
      waits: by the name of an original operation, tensors whose operations its copy waits for.

    Returns:
      The copy.
    """
    given = dict(inputs or {})
    mapped = {}
    for key, item in self._inputs.items():
      other = item if replace is None else replace.of(item)
      if isinstance(item, tf.Operation):
        mapped["^" + key] = _after(other)
      else:
        mapped[key] = given.get(key, other)
    definition = tf.GraphDef()
    definition.CopyFrom(self._definition)
    with tf.device(None), tf.control_dependencies(None), tf.name_scope(name) as scope:
      gates = {}
      for node in definition.node:
        _tell_apart(node, number, scope)
        for tensor in (waits or {}).get(node.name, ()):
          key = gates.setdefault(tensor.name, "tf1ps_gate_%d" % len(gates))
          node.input.append("^" + key)
          mapped["^" + key] = tensor
      tf.import_graph_def(definition, mapped, name=scope)
    ops = {op.name: self._graph.get_operation_by_name(scope + op.name) for op in self.ops}
    for op in self.ops:  # what `set_shape` has told of the originals
      for tensor, copied in zip(op.outputs, ops[op.name].outputs):
        copied.set_shape(tensor.shape)
    ops.update(replace.ops if replace is not None else {})
    return Copy(ops, given)

  def _closure(self, wanted):
    """The names of all operations to be copied."""
    found, waiting = set(), list(wanted)
    while waiting:
      op = waiting.pop()
      if op.name in found or op.name in self._ends or is_shared(op):
        continue
      found.add(op.name)
      waiting += [tensor.op for tensor in op.inputs]
      waiting += op.control_inputs
    return found

  def _define(self, found) -> tf.GraphDef:
    definition = tf.GraphDef()
    definition.versions.CopyFrom(self._graph.graph_def_versions)
    for op in self.ops:
      node = definition.node.add()
      node.CopyFrom(op.node_def)
      # What it was to be near to may not be here; its device says the same.
      node.attr.pop("_class", None)
      for tensor in op.inputs:
        if tensor.op.name not in found:
          self._inputs[tensor.name] = tensor
      for one in op.control_inputs:
        if one.name not in found:
          self._inputs[one.name] = one
    return definition


def _tell_apart(node, number, scope):
  """Gives a node of a copy its own random numbers and its own names within a run."""
  if number and "seed2" in node.attr and (node.attr["seed"].i or node.attr["seed2"].i):
    node.attr["seed2"].i += number
  for name in _NAMES_IN_A_RUN:
    if name in node.attr:
      node.attr[name].s = scope.encode("utf-8") + node.attr[name].s


def _after(op: tf.Operation) -> tf.Tensor:
  """A tensor of an operation: an import maps tensors alone, also those to wait for."""
  if op.outputs:
    return op.outputs[0]
  with tf.device(op.device), tf.control_dependencies([op]):
    return tf.constant(0)
