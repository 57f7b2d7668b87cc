"""Builds functions of a program as parts of each worker's graph.

A scheduled function is called once for each worker, in a graph of that worker. Workers share
variables on the ps by name, so every graph must build the same functions in the same order: a
`Builder` does so. The arguments of a call become placeholders, except for per-worker values
(`PerWorkerValues`).
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.graph import needed_ops, ops_of
from tf1ps.pipeline import without_autotuning
from tf1ps.transfer import Unrolled

_KINDS = "biufcSU"  # of NumPy types that a placeholder can take
_build_lock = threading.Lock()  # shared by all builders of the process
_STORE = "tf1ps.coordinator.results"  # the name of the results that stay on a worker


class FunctionError(Error, ValueError):
  """A function cannot be scheduled."""


class PerWorkerValues:
  """A value of which each worker has its own, such as the iterator of a per-worker dataset.

  Pass it to `schedule` among the arguments. The function gets the value of its worker.
  """

  def __init__(self, build: Callable[[], Any]):
    """Takes the function that builds the value in a worker's graph."""
    self._build = build
    self._built: Dict[tf.Graph, Any] = {}

  def of(self, graph: tf.Graph) -> Any:
    """Returns the value in a worker's graph; the first call builds the value."""
    if graph not in self._built:
      self._built[graph] = self._build()
    return self._built[graph]


class PerWorkerIterator(PerWorkerValues):
  """The iterators of a per-worker dataset: a function calls `get_next` on its worker's iterator."""

  def __next__(self):
    raise FunctionError("the elements of a per-worker dataset are on the workers: pass "
                        "iter(dataset) to schedule, and call get_next() on it in the function")


class PerWorkerDataset:
  """A dataset that each worker makes by itself; `iter` returns the iterators of all workers."""

  def __init__(self, dataset_fn: Callable[[], tf.data.Dataset]):
    if not callable(dataset_fn):
      raise TypeError("create_per_worker_dataset needs a function that returns a tf.data.Dataset, "
                      "got %r" % (dataset_fn,))
    # The iterator is built on the worker's device, without the setter, so that it is never on a ps.
    # An autotuning thread would delay the end of the worker's session, as examples/coordinator.py
    # shows.
    self._iterators = PerWorkerIterator(
      lambda: tf.data.make_initializable_iterator(without_autotuning(dataset_fn())))

  def __iter__(self):
    return self._iterators


class Signature(NamedTuple):
  """A function with the parts of its arguments that decide which graph it builds."""

  function: Callable
  parts: Tuple  # a PerWorkerValues, or the (dtype, rank) of a fed value, for each leaf
  structure: Any  # the arguments, in which each leaf is replaced by its position

  @property
  def key(self):
    return (self.function, self.parts, repr(self.structure))

  @property
  def is_fed(self) -> bool:
    return not all(isinstance(part, PerWorkerValues) for part in self.parts)

  @property
  def name(self) -> str:
    return getattr(self.function, "__name__", repr(self.function))


def split(function: Callable, args, kwargs) -> Tuple[Signature, List[np.ndarray]]:
  """Divides a call into its signature and the values to feed.

  Raises FunctionError for an argument that is neither a per-worker value nor a value to feed.
  """
  if not callable(function):
    raise FunctionError("the first argument must be a function, got %r" % (function,))
  parts: List[Any] = []
  values: List[np.ndarray] = []
  structure = _take_leaves((tuple(args or ()), dict(kwargs or {})), parts, values, function)
  return Signature(function, tuple(parts), structure), values


def _take_leaves(tree, parts, values, function):
  if isinstance(tree, dict):
    return {key: _take_leaves(tree[key], parts, values, function) for key in sorted(tree)}
  if isinstance(tree, (tuple, list)):
    return tuple(_take_leaves(each, parts, values, function) for each in tree)
  if isinstance(tree, PerWorkerValues):
    parts.append(tree)
  else:
    if isinstance(tree, (tf.Tensor, tf.Variable)):
      raise FunctionError("an argument of %r is %r: a tensor belongs to one graph, and each worker "
                          "has its own. Make it inside the function." % (function, tree))
    value = np.asarray(tree)
    if value.dtype.kind not in _KINDS:
      raise FunctionError("an argument of %r is %r: pass numbers, strings, NumPy arrays or "
                          "per-worker values" % (function, tree))
    if value.dtype.kind == "f" and not isinstance(tree, (np.ndarray, np.generic)):
      value = value.astype(np.float32)  # as TensorFlow converts Python's floats
    elif value.dtype.kind == "i" and not isinstance(tree, (np.ndarray, np.generic)):
      value = value.astype(np.int32 if _fits(value) else np.int64)
    parts.append((tf.as_dtype(value.dtype if value.dtype.kind not in "SU" else tf.string).name,
                  value.ndim))
    values.append(value)
  return len(parts) - 1


def _fits(value):
  bounds = np.iinfo(np.int32)
  return value.size == 0 or bounds.min <= value.min() and value.max() <= bounds.max


class Kept(NamedTuple):
  """Operations that keep the result of a function on its worker.

  The results are in the worker's process, each under the number of its step.
  """

  number: tf.Tensor  # a placeholder for the number of the step
  put: tf.Operation  # runs the function and keeps its tensors
  take: List  # in the order of the fetches; returns the kept tensors, and forgets them
  clear: tf.Operation  # forgets all results


class Built(NamedTuple):
  """A function in a worker's graph."""

  placeholders: List[tf.Tensor]
  fetches: List  # tensors and operations: the leaves of the result
  structure: Any  # the result, in which each leaf is replaced by its position

  def pack(self, values: List) -> Any:
    """Returns the values of the fetches in the structure of the function's result."""
    return _pack(self.structure, values)


class Builder:
  """Builds functions in a graph, under a device function.

  Attributes:
    graph: the graph.
  """

  def __init__(self, graph: tf.Graph, setter, iterator_device: str,
               partitioner: Optional[Callable] = None, variables: Optional[Set[str]] = None):
    """Prepares to build.

    Args:
      graph: the graph.
      setter: the device function of the graph's worker.
      iterator_device: the device of the per-worker datasets and of the placeholders.
      partitioner: divides the variables, or None.
      variables: the names of the variables that have values; None: all variables.
    """
    self.graph, self._partitioner, self._variables = graph, partitioner, variables
    self._setter, self._iterator_device = setter, iterator_device
    self._built: Dict[Any, Built] = {}
    self._kept: Dict[Any, Kept] = {}
    self._unrolled: Dict[Any, Unrolled] = {}

  def build(self, signature: Signature) -> Built:
    """Returns the function in this graph; the first call builds the function."""
    built = self._built.get(signature.key)
    if built is None:
      # Builders work in turn: workers build in threads, and an optimizer outside of the function
      # keeps tensors from the call of one of its methods to the call of the next.
      with _build_lock, self.graph.as_default():
        built = self._built[signature.key] = self._make(signature)
    return built

  def build_kept(self, signature: Signature) -> Kept:
    """Returns the operations that keep the function's result on the worker."""
    kept = self._kept.get(signature.key)
    if kept is None:
      built = self.build(signature)
      with self.graph.as_default(), tf.device(self._iterator_device):
        kept = self._kept[signature.key] = _keep(built.fetches)
    return kept

  def build_unrolled(self, signature: Signature, steps: int) -> Unrolled:
    """Returns copies of the function, each of which reads the updates of the copy before.

    Raises ValueError if the function prefetches, or is fed with arrays.
    """
    unrolled = self._unrolled.get(signature.key)
    if unrolled is None:
      built = self.build(signature)
      with self.graph.as_default():
        with tf.device(self._iterator_device):
          whole = tf.group(*built.fetches)
        unrolled = self._unrolled[signature.key] = Unrolled(
          whole, steps, fetches=built.fetches, worker=self._iterator_device)
    return unrolled

  def count_ops(self, signature: Signature) -> int:
    """Returns the number of operations of the function."""
    return len(needed_ops(ops_of(self.build(signature).fetches)))

  def _make(self, signature):
    placeholders, leaves = [], []
    for part in signature.parts:
      if isinstance(part, PerWorkerValues):
        with tf.device(self._iterator_device):
          leaves.append(part.of(self.graph))
      else:
        with tf.device(self._iterator_device):
          placeholders.append(tf.placeholder(part[0], [None] * part[1]))
        leaves.append(placeholders[-1])
    args, kwargs = _pack(signature.structure, leaves)
    with tf.device(self._setter), tf.variable_scope(
        tf.get_variable_scope(), reuse=tf.AUTO_REUSE, partitioner=self._partitioner):
      result = signature.function(*args, **kwargs)
    self._check_variables(signature)
    fetches: List = []
    structure = _take_fetches(result, fetches, signature)
    if not fetches:
      raise FunctionError("%s returns nothing, so nothing would run: return the operation or the "
                          "tensor to run" % signature.name)
    return Built(placeholders, fetches, structure)

  def _check_variables(self, signature):
    if self._variables is not None:
      new = [v.op.name for v in tf.global_variables() if v.op.name not in self._variables]
      if new:
        raise FunctionError(
          "%s makes the variable %s, which has no value, because the coordinator has already "
          "started: pass the function to ClusterCoordinator.build before the first step" % (
            signature.name, new[0]))


def _keep(fetches):
  number = tf.placeholder(tf.int64, [])
  tensors = [each for each in fetches if isinstance(each, tf.Tensor)]
  types = [each.dtype for each in tensors]
  indices = list(range(len(tensors)))
  # Operations run, too; their result is None, as from a session.
  with tf.control_dependencies([e for e in fetches if isinstance(e, tf.Operation)]):
    put = tf.raw_ops.MapStage(
      key=number, indices=indices, values=tensors, dtypes=types, shared_name=_STORE)
  taken = tf.raw_ops.MapUnstage(key=number, indices=indices, dtypes=types, shared_name=_STORE)
  rest = iter(taken)
  nothing = tf.no_op()
  take = [next(rest) if isinstance(each, tf.Tensor) else nothing for each in fetches]
  return Kept(number, put, take, tf.raw_ops.MapClear(dtypes=types, shared_name=_STORE))


def _take_fetches(tree, fetches, signature):
  result = tree
  if tree is None:
    return None
  if isinstance(tree, dict):
    return {key: _take_fetches(tree[key], fetches, signature) for key in tree}
  if isinstance(tree, (tuple, list)):
    return tuple(_take_fetches(each, fetches, signature) for each in tree)
  if not isinstance(tree, tf.Operation):
    try:
      tree = tf.convert_to_tensor(tree) if tf.is_tensor(tree) else None  # a variable is read
    except (TypeError, ValueError):
      tree = None
    if tree is None:
      raise FunctionError("%s returns %r: return dense tensors, operations, or tuples, lists and "
                          "dicts of them" % (signature.name, result))
  fetches.append(tree)
  return len(fetches) - 1


def _pack(structure, leaves):
  if structure is None:
    return None
  if isinstance(structure, dict):
    return {key: _pack(each, leaves) for key, each in structure.items()}
  if isinstance(structure, tuple):
    return tuple(_pack(each, leaves) for each in structure)
  return leaves[structure]
