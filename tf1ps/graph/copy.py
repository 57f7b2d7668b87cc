"""Copies a part of a graph within the same graph.

A `Subgraph` holds some tensors and operations with the operations that they need, or just a list of
operations. These rules determine the subgraph of some fetches:

1. All copies share the state that outlives a run (variables, queues, iterators, tables and other
   handles), placeholders, and constants.
2. Everything else is copied with its devices and control edges. This includes operations with
   state, such as the operation that draws the batch, an assertion, or a call of Python. An
   operation that draws random numbers from a seed draws different numbers in each copy, also in a
   function (random_functions.py). Copy 0 draws the numbers of the original.
3. Each copy of a loop has its own frame.

The definition of the subgraph is built once, and each copy is an import of it. This is fast, which
matters because the graph of a model of 200 variables has several thousand operations.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.graph import op_devices, random_functions, walk

_PLACEHOLDERS = frozenset(["Placeholder", "PlaceholderV2", "PlaceholderWithDefault"])
# Handles that live only during a run, so each copy needs its own handle.
_OF_A_RUN = ("TensorArray", "Stack", "TemporaryVariable")
_TABLES_WITH_INPUTS = frozenset(["MutableDenseHashTable", "MutableDenseHashTableV2"])
_NAMES_IN_A_RUN = ("frame_name", "var_name")  # attributes: names that no two copies may share


def ops_of(items: Any) -> List[tf.Operation]:
  """Returns the operations of a structure of tensors, operations and sparse gradients."""
  return [leaf if isinstance(leaf, tf.Operation) else leaf.op
          for leaf in tf.nest.flatten(items, expand_composites=True) if leaf is not None]


def is_handle(op: tf.Operation) -> bool:
  """Returns whether an operation represents state that outlives a run, such as a variable."""
  if op.type.startswith(_OF_A_RUN) or op.type not in _TABLES_WITH_INPUTS and len(op.inputs):
    return False
  return any(is_handle_type(tensor) for tensor in op.outputs)


def is_handle_type(tensor: tf.Tensor) -> bool:
  """Returns whether a tensor is a resource or a reference."""
  return tensor.dtype == tf.resource or tensor.dtype != tensor.dtype.base_dtype


def is_shared(op: tf.Operation) -> bool:
  """Returns whether all copies use the original of an operation."""
  if is_handle(op):  # a copy of a named handle has the same state, without the waits
    return not (op.control_inputs and op.node_def.attr["shared_name"].s)
  return op.type in _PLACEHOLDERS or not (
    len(op.inputs) or op.control_inputs or op.op_def.is_stateful)


class SubgraphCopy:
  """A copy of a subgraph.

  Attributes:
    ops: the copied operations by the names of the originals.
  """

  def __init__(self, ops: Dict[str, tf.Operation], inputs: Dict[str, tf.Tensor]):
    self.ops = ops
    self._inputs = inputs

  def of(self, items: Any) -> Any:
    """Returns the copies of a structure of tensors, operations and sparse gradients.

    For an operation that is shared, and for None, the result has the same object.
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


class Subgraph:
  """A part of a graph that can be copied.

  Attributes:
    ops: the operations that are copied, in the order in which they were created.
  """

  def __init__(self, fetches: Any, without: Iterable[tf.Operation] = ()):
    """Finds the subgraph that computes some fetches; raises ValueError if `fetches` is empty.

    The operations in `without` do not belong to the subgraph, nor do the operations that only they
    need. A copy uses the originals of these operations, or replacements.
    """
    wanted = ops_of(fetches)
    if not wanted:
      raise ValueError("fetches must be tensors or operations, got %r" % (fetches,))
    ends = {op.name for op in without}
    self._set_ops(walk.needed_ops(wanted, stop=lambda op: op.name in ends or is_shared(op)),
                  wanted[0].graph, True)

  @classmethod
  def of_ops(cls, ops: Sequence[tf.Operation], with_control_inputs: bool = True) -> "Subgraph":
    """Returns the subgraph of exactly these operations, even if they include shared constants.

    With control inputs, the copies wait for the operations that the originals wait for.
    """
    subgraph = cls.__new__(cls)
    subgraph._set_ops(list(ops), ops[0].graph, with_control_inputs)
    return subgraph

  def copy(self, name: str, number: int = 0,
           replace: Optional[SubgraphCopy] = None,
           inputs: Optional[Dict[str, tf.Tensor]] = None,
           waits: Optional[Dict[str, Sequence[Union[tf.Tensor, tf.Operation]]]] = None,
           device: Optional[str] = None) -> SubgraphCopy:
    """Makes a copy, in the current name scope; returns the copy.

    Args:
      name: the scope of the names of the copied operations.
      number: the number of the copy. Copies of the same number draw the same values from a seed.
      replace: a copy of a subgraph that was left out of this subgraph. This copy uses it.
      inputs: replacements for tensors from outside of the subgraph, by the names of these tensors.
      waits: by the name of an original operation, the further operations that its copy waits for.
        An operation of this subgraph means its copy; a tensor means the tensor's own operation.
      device: the device of all copied operations; None: the devices of the originals.
    """
    given = dict(inputs or {})
    mapped = {}
    for key, item in self._inputs.items():
      other = item if replace is None else replace.of(item)
      if isinstance(item, tf.Operation):
        mapped["^" + key] = _as_tensor(other)
      else:
        mapped[key] = given.get(key, other)
    definition = tf.GraphDef()
    definition.CopyFrom(self._definition)
    with tf.device(None), tf.control_dependencies(None), tf.name_scope(name) as scope:
      gates = {}
      for node in definition.node:
        random_functions.renumber_seed(node, number)
        _name_in_run(node, scope)
        if device is not None:
          node.device = device
        for item in (waits or {}).get(node.name, ()):
          if isinstance(item, tf.Operation):
            node.input.append("^" + item.name)
            continue
          key = gates.setdefault(item.name, "tf1ps_gate_%d" % len(gates))
          node.input.append("^" + key)
          mapped["^" + key] = item
      if number and self._functions is not None:
        self._functions.renumber(definition, number)
      tf.import_graph_def(definition, mapped, name=scope)
    ops = {op.name: self._graph.get_operation_by_name(scope + op.name) for op in self.ops}
    for op in self.ops:  # an import loses the shapes of `set_shape`
      for tensor, copied in zip(op.outputs, ops[op.name].outputs):
        copied.set_shape(tensor.shape)
    ops.update(replace.ops if replace is not None else {})
    return SubgraphCopy(ops, given)

  def _set_ops(self, ops, graph, with_control_inputs):
    self.ops, self._graph = ops, graph
    self._inputs: Dict[str, Union[tf.Tensor, tf.Operation]] = {}
    self._definition = tf.GraphDef()
    self._definition.versions.CopyFrom(graph.graph_def_versions)
    names = {op.name for op in ops}
    for op in ops:
      node = self._definition.node.add()
      node.CopyFrom(op.node_def)
      # The operation that this one is colocated with may not be in the copy. The device gives the
      # same place.
      node.attr.pop("_class", None)
      for tensor in op.inputs:
        if tensor.op.name not in names:
          self._inputs[tensor.name] = tensor
      if not with_control_inputs:
        node.input[:] = [name for name in node.input if not name.startswith("^")]
        continue
      for control in op.control_inputs:
        if control.name not in names:
          self._inputs[control.name] = control
    self._functions = None
    if random_functions.calls_functions(self._definition.node):
      self._functions = random_functions.RandomFunctions(graph.as_graph_def().library)


def _name_in_run(node, scope):
  """Gives a node of a copy its own names within a run."""
  for name in _NAMES_IN_A_RUN:
    if name in node.attr:
      node.attr[name].s = scope.encode("utf-8") + node.attr[name].s


def make_gate(name: str = "gate") -> tf.Tensor:
  """Returns an empty tensor that operations can wait for; it waits for the caller's dependencies.

  The tensor is not a constant. If the beginning of a loop waits for a constant, TensorFlow's
  optimizer takes the constant for the loop's first value, and may drop the loop
  (tests/upstream/loop_behind_a_constant.py).
  """
  return tf.raw_ops.Empty(shape=[0], dtype=tf.float32, name=name)


def _as_tensor(op: tf.Operation) -> tf.Tensor:
  """Returns a tensor of an operation: an import maps only tensors, also for control inputs."""
  if op.outputs:
    return op.outputs[0]
  task = op_devices.task_of_op(op)  # an operation on a variable may have another device
  device = op_devices.cpu_of(task) if task else op.device
  with tf.device(device), tf.control_dependencies([op]):
    return make_gate()
