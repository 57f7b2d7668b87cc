"""Retries an enqueue operation in parts, to find the records that cannot be decoded.

A decoder's error says "Field 2 in record 0 is not a valid float: x", without file or line.
`track_records` makes a second enqueue operation, which keeps the records of its last run:

1. Upwards from the enqueue operation, the nearest source of records is found: a Reader's read, or
   tensors that were given to `add_record_source`.
2. Only the operations between the source and the enqueue operation are copied. The other inputs of
   the copies are the original tensors.
3. Before the copies run, the keys and records of the source are put into two local variables.
4. If a run fails in a copied operation, `retry` reads the variables. It feeds the copy with halves
   of the records, in order, until each bad record is alone; the good records are enqueued on the
   way. Of n records with one bad record this takes 2 log2(n) runs.

The copy takes 1 to 2 % more time per run (60 microseconds for a line of 28 floats that is decoded
alone).
"""

from __future__ import annotations

import uuid
from typing import Dict, Iterable, List, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.compat import error_line, failed_nodes, retry_refused_run
from tf1ps.graph import (
  Subgraph,
  consumers_of,
  descendants,
  is_enter,
  is_handle,
  needed_ops,
)
from tf1ps.pipeline import bad_records
from tf1ps.pipeline.graph_input import RecordSource, input_of

_READS = frozenset(["ReaderReadV2", "ReaderReadUpToV2", "ReaderRead", "ReaderReadUpTo"])
# The errors of a decoder for a record that it cannot decode; other errors are not skipped.
_BAD = (tf.errors.InvalidArgumentError, tf.errors.DataLossError)
# The queue was closed, or a task of the cluster is lost.
_NOT_OF_RECORDS = (tf.errors.OutOfRangeError, tf.errors.CancelledError, tf.errors.AbortedError,
                   tf.errors.UnavailableError)


class TrackedEnqueue(NamedTuple):
  """A copy of an enqueue operation that keeps the records of its last run."""

  enqueue: tf.Operation
  keys: tf.Tensor  # of the source; feed keys and values with a part of the records
  values: tf.Tensor  # of the source
  last_keys: tf.Tensor  # of the last run
  last_values: tf.Tensor  # of the last run
  counts: List[tf.Tensor]  # int64 []: the number of records that each reader above has read
  prefix: str  # of the names of the copied operations
  original: tf.Operation  # the enqueue operation that was copied

  def is_in(self, error: tf.errors.OpError) -> bool:
    """Returns whether an error comes from a copied operation, and so from the records."""
    return self._name_in(error).startswith(self.prefix)

  def may_be_in(self, error: tf.errors.OpError) -> bool:
    """Returns whether an error names no operation of the graph, so that it may be in a function."""
    named = failed_nodes(error)
    return error.op is None and bool(named) and not _exists(self.original.graph, named[0])

  def of_original(self, error: tf.errors.OpError, text: str) -> tf.errors.OpError:
    """Returns the error of a copy as if the original had raised it, with a one-line text."""
    op, name = self.original, self._name_in(error)[len(self.prefix):]
    if _exists(op.graph, name):  # else it is in a function
      op = op.graph.get_operation_by_name(name)
    return type(error)(op.node_def, op, "%s\n\t [[node %s]]" % (
      text.replace(self.prefix, ""), op.name))

  def _name_in(self, error):
    if error.op is not None:
      return error.op.name
    # An error of a function that `make_callable` made has no operation.
    return next((name for name in failed_nodes(error) if name.startswith(self.prefix)), "")


def track_records(enqueue_op: tf.Operation, number: int = 0) -> Optional[TrackedEnqueue]:
  """Copies an enqueue operation of the default graph with all operations up to its records.

  Copies of the same `number` draw the same random values. Returns None if no operation decodes the
  records, or if they come from several sources.
  """
  sources = _sources(enqueue_op.graph)
  ends = [tensor for source in sources.values() for tensor in source]
  above = needed_ops([enqueue_op], fed=ends)
  used = {id(sources[tensor.name]): sources[tensor.name]
           for op in above for tensor in op.inputs if tensor.name in sources}
  if len(used) != 1:
    return None
  source, = used.values()
  names = {tensor.name for tensor in source}
  first = [op for op in above if any(tensor.name in names for tensor in op.inputs)]
  inside = descendants(first, consumers_of(above))
  path = [op for op in above if op in inside]
  if path == [enqueue_op]:
    return None
  if any(is_enter(op) for op in path):
    # A loop needs all its operations, even operations that do not depend on records, such as its
    # counter.
    path = needed_ops([enqueue_op], fed=ends, stop=is_handle)
  with tf.device(None), tf.device(source.keys.device), tf.control_dependencies(None):
    return _copy(enqueue_op, source, path, number)


def _exists(graph, name):
  try:
    return bool(graph.get_operation_by_name(name))
  except (KeyError, ValueError):
    return False


def _sources(graph) -> Dict[str, RecordSource]:
  """Returns {name of a tensor: its source}."""
  sources = {}
  reads = [RecordSource(*op.outputs) for op in graph.get_operations() if op.type in _READS]
  for source in reads + input_of(graph).record_sources:
    sources[source.keys.name] = sources[source.values.name] = source
  return sources


def _copy(enqueue_op, source, path, number):
  with tf.name_scope("tf1ps_records"):
    handles = [_local_variable(tensor) for tensor in source]
    last = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string) for handle in handles]
    puts = [tf.raw_ops.AssignVariableOp(resource=handle, value=tensor)
            for handle, tensor in zip(handles, source)]
    # One operation after the other: a change of threads takes longer than an operation.
    names = {tensor.name for tensor in source}
    waits = {op.name: puts[1:] for op in path if any(tensor.name in names for tensor in op.inputs)}
    waits[puts[1].name] = puts[:1]
    copied = Subgraph.of_ops(puts + path).copy("copy", number, waits=waits)
  enqueue = copied.ops[enqueue_op.name]
  return TrackedEnqueue(enqueue, source.keys, source.values, last[0], last[1], _counts(source),
                        enqueue.name[:-len(enqueue_op.name)], enqueue_op)


def _counts(source):
  """The count of the source's reader, or the counts of all readers if records come from a queue."""
  ops = source.keys.graph.get_operations()
  reads = [source.keys.op] if source.keys.op.type in _READS else [
    op for op in ops if op.type in _READS]
  handles = {op.inputs[0].name: op.inputs[0] for op in reads}
  return [tf.raw_ops.ReaderNumRecordsProducedV2(reader_handle=handle)
          if handle.dtype == tf.resource else
          tf.raw_ops.ReaderNumRecordsProduced(reader_handle=handle)
          for _, handle in sorted(handles.items())]


def _local_variable(tensor):
  # The name is unique, because sessions of a server share variables by their names.
  return tf.raw_ops.VarHandleOp(
    dtype=tf.string, shape=tensor.shape, shared_name="tf1ps_records_" + uuid.uuid4().hex)


def retry(kind, session, tracked: TrackedEnqueue, error: tf.errors.OpError) -> None:
  """Enqueues the good records of a failed run; skips the bad records, or raises.

  `tracked.is_in` or `tracked.may_be_in` holds for the error. `kind` is the class whose
  `run` is used.

  Raises:
    tf.errors.OpError: the error of the first bad record, with its position. The records before this
      record are enqueued.
    bad_records.TooManyBadRecordsError: too many records were skipped.
  """
  try:
    keys, values = kind.run(session, [tracked.last_keys, tracked.last_values])
  except (tf.errors.FailedPreconditionError, tf.errors.NotFoundError):
    raise error from None  # no record was read yet
  feeds = {tracked.keys: keys, tracked.values: values}
  if not tracked.is_in(error):
    # If these records can be decoded, they were enqueued, and the error has another cause.
    try:
      kind.run(session, list(tracked.enqueue.inputs)[1:], feeds)
    except tf.errors.OpError:
      pass
    else:
      raise error
  _Retry(kind, session, tracked).failed(keys, values, error)


def records_read(session, tracked: Iterable[Optional[TrackedEnqueue]], kind=tf.Session) -> int:
  """Returns how many records the readers of these operations have read in this session."""
  counts = {tensor.op.inputs[0].name: tensor
            for enqueue in tracked if enqueue is not None for tensor in enqueue.counts}
  return int(sum(kind.run(session, list(counts.values()))))


class _Retry:
  """The parts of a failed run."""

  def __init__(self, kind, session, tracked):
    self._kind, self._session, self._tracked = kind, session, tracked
    self._policy = input_of(tracked.enqueue.graph).bad_records

  def failed(self, keys: np.ndarray, values: np.ndarray, error: tf.errors.OpError):
    """Handles records, at least one of which is bad."""
    if np.size(keys) > 1 and self._have_fixed_shape(len(keys)):
      raise self._located(error, "one of %s to %s" % (_text(keys), _text(keys[-1])))
    if np.size(keys) > 1:
      middle = len(keys) // 2
      for begin, end in ((0, middle), (middle, len(keys))):
        self._enqueue(keys[begin:end], values[begin:end])
      return
    if not (self._policy.skips and isinstance(error, _BAD)):
      raise self._located(error, _text(keys))
    self._policy.skip(_text(keys), self._reason(error),
                      records_read(self._session, [self._tracked], self._kind))

  def _have_fixed_shape(self, count):
    """Whether the graph fixes the number of records, so that parts cannot be fed."""
    return any(not tensor.shape.is_compatible_with([count - 1])
               for tensor in (self._tracked.keys, self._tracked.values))

  def _reason(self, error):
    return error_line(error).replace(self._tracked.prefix, "")

  def _located(self, error, key):
    return bad_records.located(self._tracked.of_original(error, self._reason(error)), key)

  def _enqueue(self, keys, values):
    try:
      retry_refused_run(self._kind.run, self._session, self._tracked.enqueue,
                        {self._tracked.keys: keys, self._tracked.values: values})
    except _NOT_OF_RECORDS:
      raise
    except tf.errors.OpError as error:  # the error can only come from the copied operations
      self.failed(keys, values, error)


def _text(keys) -> str:
  """Returns the first key of a scalar or vector."""
  key = np.asarray(keys).reshape([-1])[0]
  return key.decode("utf-8", "replace")
