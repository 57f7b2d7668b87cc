"""Iterators that sessions initialise, and whose positions can be saved.

TensorFlow's training sessions initialise variables and tables. With them, the user must initialise
an iterator that is not one-shot, again in each session that replaces another session. Here:

1. `iterator_initializers` finds the operations that initialise the iterators of a graph. The
   sessions of tf1ps run them after the initialisers of variables and tables, because a dataset may
   read both.
2. `without_autotuning` removes a thread of tf.data that can delay the end of a session.
3. `next_batch` makes an iterator of a program's dataset.
4. `IteratorPositions` saves the positions of iterators, and restores them in a new session.
5. `has_python_calls` finds operations that only this process can run. An iterator that calls Python
   has no position.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import logging
import os
from typing import Any, Callable, Iterator, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import CONNECTION_ERRORS, Error, temporary_directory
from tf1ps.graph import needed_ops

_log = logging.getLogger("tf1ps")
_PLACEHOLDERS = frozenset(["Placeholder", "PlaceholderV2"])
_PYTHON_CALLS = frozenset(["PyFunc", "PyFuncStateless", "EagerPyFunc"])
KEEPING = (  # datasets that keep the order of records, and drop none before their end
  "MapDataset", "ParallelMapDataset", "MapAndBatchDataset", "BatchDataset", "ParallelBatchDataset",
  "PaddedBatchDataset", "PrefetchDataset", "OptionsDataset", "ModelDataset", "OptimizeDataset")
_FILES = ("position.index", "position.data-00000-of-00001")
# The size of the largest position. Each worker sends its position to a ps every few seconds, and
# each checkpoint contains all positions.
MOST_BYTES = 1 << 26
# Part of the name of the only operation of tf1ps that calls Python, to report bad records. The
# operation is on the device of this process (batch_decoding.py), so `has_python_calls` does not
# count it.
REPORT_NAME = "tf1ps_bad_records"


class PositionError(Error, RuntimeError):
  """The position of an iterator cannot be kept, or it belongs to another pipeline."""


def iterator_initializers(graph: tf.Graph, already: Any = None,
                          only_task: Optional[str] = None) -> List[tf.Operation]:
  """Finds the operations that initialise the iterators of a graph; adds nothing to the graph.

  The user must initialise an iterator whose initialiser needs a fed placeholder. The user must also
  feed the string handle of a feedable iterator, but not initialise the iterators that it names.

  Args:
    graph: the graph.
    already: an operation or tensor that has run, or a structure of them, such as the local_init_op
      with the collection TABLE_INITIALIZERS. The iterators that they initialise are left out.
    only_task: a task such as "/job:worker/task:1". Iterators on another task's device are left out,
      because that task initialises them. None: all iterators.

  Returns:
    The first operation that was made for each iterator, in order.
  """
  ran = [graph.as_graph_element(fetch) for fetch in tf.nest.flatten(already) if fetch is not None]
  done = set(needed_ops([fetch.op if isinstance(fetch, tf.Tensor) else fetch for fetch in ran]))
  first = {}  # {iterator: the initialiser that has run, or that was made first}
  for op in graph.get_operations():
    if op.type == "MakeIterator":
      iterator = op.inputs[1].op
      if op in done or iterator not in first:
        first[iterator] = op
  unrun = []
  for iterator, op in first.items():
    if op in done or not _is_on(iterator.device or op.device, only_task):
      continue
    fed = sorted(each.name for each in needed_ops([op]) if each.type in _PLACEHOLDERS)
    if fed:
      _log.info("the iterator %s needs a feed of %s, so tf1ps does not initialise it. Run %s in "
                "your program.", iterator.name, ", ".join(fed), op.name)
    else:
      unrun.append(op)
  return unrun


def next_batch(dataset: tf.data.Dataset) -> Any:
  """Makes an iterator that sessions of tf1ps initialise; returns the tensors of the next batch."""
  return tf.data.make_initializable_iterator(without_autotuning(dataset)).get_next()


def generated(generate: Callable[[], Iterator], spec: Any) -> tf.data.Dataset:
  """Makes a dataset of a Python function's yielded values; TensorSpecs describe an element."""
  if "output_signature" in inspect.signature(tf.data.Dataset.from_generator).parameters:
    return tf.data.Dataset.from_generator(generate, output_signature=spec)
  return tf.data.Dataset.from_generator(  # TensorFlow 1.15's arguments; later they are deprecated
    generate, tf.nest.map_structure(lambda part: part.dtype, spec),
    tf.nest.map_structure(lambda part: part.shape, spec))


def without_version(op_type: str) -> str:
  """Returns "BatchDataset" for "BatchDatasetV2", or for "ExperimentalBatchDataset"."""
  stem = op_type.rstrip("0123456789")
  stem = stem[:-1] if stem != op_type and stem.endswith("V") else stem
  return stem[len("Experimental"):] if stem.startswith("Experimental") else stem


def _is_on(device: str, task: Optional[str]) -> bool:
  if task is None or not device:
    return True
  spec = tf.DeviceSpec.from_string(device)
  return spec.job is None or "/job:%s/task:%d" % (spec.job, spec.task or 0) == task


def without_autotuning(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Returns a dataset without autotuning; datasets made from it inherit this option.

  On TensorFlow 2 an iterator has a thread that tunes the iterator's parallelism and sleeps in
  between, for up to a minute. Closing the session wakes the thread, but the thread sleeps again if
  it checks its state before it counts as cancelled. The close waits for the thread, and holds a
  lock that all other sessions of the process's server need. Without autotuning this thread does not
  exist, and `num_parallel_calls=tf.data.AUTOTUNE` means the number of cores. The thread of
  TensorFlow 1.15 ends immediately, so on 1.15 this function returns the dataset unchanged.
  """
  options = tf.data.Options()
  if not hasattr(options, "autotune"):
    return dataset
  options.autotune.enabled = False
  return dataset.with_options(options)


def has_python_calls(graph: tf.Graph) -> bool:
  """Returns whether a graph or its functions call Python, apart from reports of bad records.

  Operations of `tf.py_func`, `tf.numpy_function` and `Dataset.from_generator` run only in the
  process that built them, regardless of their device.
  """
  definition = graph.as_graph_def()
  nodes = list(definition.node)
  for function in definition.library.function:
    nodes += function.node_def
  return any(node.op in _PYTHON_CALLS and REPORT_NAME not in node.name for node in nodes)


class IteratorPositions:
  """The positions of the iterators of a graph that sessions of tf1ps initialise.

  A position is a byte string. It contains the state of the pipeline, such as the elements in a
  shuffle buffer. TensorFlow writes a position only to a file. So it passes through a temporary
  directory of this process, and the iterators must be on a device of this process.

  Attributes:
    digest: a text that is equal for equal pipelines, which have the same operations, functions and
      constants, such as file names.
    can_save: whether the graph has iterators, and none of them calls Python.
    calls_python: whether an iterator calls Python.
  """

  def __init__(self, graph: tf.Graph):
    """Adds operations that save and restore the iterators to `graph`, the default graph."""
    self._initializers = iterator_initializers(graph)
    description = _description(graph, self._initializers)
    self.digest = hashlib.sha256(json.dumps(description).encode()).hexdigest()[:16]
    self.calls_python = any(op in _PYTHON_CALLS for op, _ in description)
    self.can_save = bool(self._initializers) and not self.calls_python
    if not self.can_save:
      return
    self._prefix = tf.placeholder(tf.string, [], "position_file")
    names = [op.inputs[1].op.name for op in self._initializers]
    slices = [""] * len(names)
    # The device of the iterators (they may have no device), not the worker's default device.
    with tf.device(self._initializers[0].device):
      states = [_serialize(op.inputs[1]) for op in self._initializers]
      self._save = tf.raw_ops.SaveV2(
        prefix=self._prefix, tensor_names=names, shape_and_slices=slices, tensors=states)
      read = tf.raw_ops.RestoreV2(prefix=self._prefix, tensor_names=names, shape_and_slices=slices,
                                  dtypes=[tf.variant] * len(names))
      self._restore = tf.group(*[
        tf.raw_ops.DeserializeIterator(resource_handle=op.inputs[1], serialized=state)
        for op, state in zip(self._initializers, read)])

  def save(self, session: tf.Session) -> bytes:
    """Returns the positions. No other thread may take a batch during the call.

    Raises PositionError if TensorFlow cannot save a dataset of the pipeline, if its files cannot be
    written, or if they have more than `MOST_BYTES`.
    """
    with _position_errors(), temporary_directory("position") as folder:
      session.run(self._save, {self._prefix: os.path.join(folder, "position")})
      paths = [os.path.join(folder, name) for name in _FILES]
      size = sum(os.path.getsize(path) for path in paths)
      if size > MOST_BYTES:
        raise PositionError("it takes %d MB, as a shuffle buffer of large records does, and at "
                            "most %d MB are kept" % (size >> 20, MOST_BYTES >> 20))
      parts = []
      for path in paths:
        with open(path, "rb") as file:
          parts.append(file.read())
    return b"%d\n" % len(parts[0]) + parts[0] + parts[1]

  def restore(self, session: tf.Session, position: bytes) -> None:
    """Restores the positions of iterators that are initialised.

    Raises PositionError if the position cannot be restored; then the iterators are at their
    beginning.
    """
    size, _, both = position.partition(b"\n")
    try:
      with _position_errors(), temporary_directory("position") as folder:
        for name, part in zip(_FILES, (both[:int(size)], both[int(size):])):
          with open(os.path.join(folder, name), "wb") as file:
            file.write(part)
        session.run(self._restore, {self._prefix: os.path.join(folder, "position")})
    except PositionError:
      session.run(self._initializers)
      raise


@contextlib.contextmanager
def _position_errors() -> Iterator[None]:
  """Turns an error into a PositionError, unless the error means a lost or closed session."""
  try:
    yield
  except CONNECTION_ERRORS:
    raise
  except tf.errors.OpError as error:
    raise PositionError(error.message) from error
  except (OSError, MemoryError) as error:
    raise PositionError("%s: %s" % (type(error).__name__, error)) from error


def _serialize(handle):
  try:
    # 2: state outside of the pipeline is an error, as in make_saveable_from_iterator.
    return tf.raw_ops.SerializeIterator(resource_handle=handle, external_state_policy=2)
  except TypeError:  # TensorFlow 1.15 has no such argument
    return tf.raw_ops.SerializeIterator(resource_handle=handle)


def _description(graph: tf.Graph, initializers: List[tf.Operation]) -> list:
  """Returns (type, constant) of each operation of the pipelines and their functions, in order."""
  definition = graph.as_graph_def()
  functions = {each.signature.name: each for each in definition.library.function}
  names = {op.name for op in needed_ops(initializers)}
  nodes = [node for node in definition.node if node.name in names]
  description, seen = [], set()
  while nodes:
    node = nodes.pop(0)
    description.append((node.op, _constant(node)))
    for key in sorted(node.attr):
      called = node.attr[key].func.name
      if called in functions and called not in seen:
        seen.add(called)
        nodes += functions[called].node_def
  return description


def _constant(node) -> str:
  if node.op != "Const":
    return ""
  return hashlib.sha256(node.attr["value"].tensor.SerializeToString(deterministic=True)).hexdigest()
