"""Enqueue operations that remember which records they were made of.

An error of a decoder says "Field 2 in record 0 is not a valid float: x" and names neither file nor
line. `copy` makes a second enqueue operation that can be asked:

1. From the enqueue operation upwards, the operations between it and the nearest source of records
   are found: a Reader's read, or a pair of tensors given to `add_record_source`.
2. These operations, and no others, are copied. Their inputs from elsewhere stay what they are.
3. Before the copy begins, keys and values go into two local variables.
4. After a run of the copy has failed in the copy, the variables tell what had been read. When keys
   and values are fed, the copy enqueues those: so parts of what was read can be tried again.

That costs a run 1 to 2 % of its time (a line of 28 floats, decoded one by one, 60 microseconds).
"""

from __future__ import annotations

import re
import uuid
from typing import Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.graph import Subgraph, consumers_of, descendants, is_enter, is_handle, needed_ops
from tf1ps.pipeline.graph_input import RecordSource, input_of

_READS = frozenset(["ReaderReadV2", "ReaderReadUpToV2", "ReaderRead", "ReaderReadUpTo"])


class Copy(NamedTuple):
  """An enqueue operation that remembers its records."""

  enqueue: tf.Operation
  keys: tf.Tensor  # the source's: feed this and
  values: tf.Tensor  # this with a part of what was read
  last_keys: tf.Tensor  # what was read last
  last_values: tf.Tensor
  counts: List[tf.Tensor]  # int64 scalars: the records that each reader above has read so far
  prefix: str  # of the names of the copied operations
  original: tf.Operation  # the enqueue operation that this is a copy of

  def is_in(self, error: tf.errors.OpError) -> bool:
    """Whether an error comes from one of the copied operations, and so from its records."""
    return self._name_in(error).startswith(self.prefix)

  def may_be_in(self, error: tf.errors.OpError) -> bool:
    """Whether an error names no operation of the graph: it may come from inside of a function."""
    named = re.findall(r"\{\{node ([^ }]*)", error.message)
    return error.op is None and bool(named) and not _exists(self.original.graph, named[0])

  def of_original(self, error: tf.errors.OpError, text: str) -> tf.errors.OpError:
    """The same error, as if the operation that was copied had raised it.

    Args:
      error: for which `is_in` holds.
      text: what it says in one line, without the operation.
    """
    op, name = self.original, self._name_in(error)[len(self.prefix):]
    if _exists(op.graph, name):  # not one inside of a function
      op = op.graph.get_operation_by_name(name)
    return type(error)(op.node_def, op, "%s\n\t [[node %s]]" % (
      text.replace(self.prefix, ""), op.name))

  def _name_in(self, error):
    if error.op is not None:
      return error.op.name
    # What `make_callable` makes raises errors without their operation.
    found = re.search(r"\{\{node (%s[^ }]*)" % re.escape(self.prefix), error.message)
    return found.group(1) if found else ""


def copy(enqueue_op: tf.Operation, number: int = 0) -> Optional[Copy]:
  """Copies an enqueue operation with all that stands between it and its records.

  The default graph is that of the operation, and not finalized.

  Args:
    enqueue_op: the operation.
    number: of the copy, where there are several; those of one number draw the same random values.

  Returns:
    The copy, or None: nothing decodes records there, or they come from several sources.
  """
  graph = enqueue_op.graph
  sources = _sources(graph)
  ends = [tensor for pair in sources.values() for tensor in pair]
  above = needed_ops([enqueue_op], fed=ends)
  found = {id(sources[tensor.name]): sources[tensor.name]
           for op in above for tensor in op.inputs if tensor.name in sources}
  if len(found) != 1:
    return None
  source, = found.values()
  takers = [op for op in above if any(tensor.name in (source.keys.name, source.values.name)
                                      for tensor in op.inputs)]
  inside = descendants(takers, consumers_of(above))
  path = [op for op in above if op in inside]
  if path == [enqueue_op]:
    return None
  if any(is_enter(op) for op in path):
    # A loop is not complete without operations that need no record, such as its counter.
    path = needed_ops([enqueue_op], fed=ends, stop=is_handle)
  with tf.device(None), tf.device(source.keys.device), tf.control_dependencies(None):
    return _copy(enqueue_op, source, path, number)


def _exists(graph, name):
  return name in {op.name for op in graph.get_operations()}


def _sources(graph) -> Dict[str, RecordSource]:
  """{name of a tensor: the source that it is of}."""
  sources = {}
  pairs = [RecordSource(*op.outputs) for op in graph.get_operations() if op.type in _READS]
  for pair in pairs + input_of(graph).record_sources:
    sources[pair.keys.name] = sources[pair.values.name] = pair
  return sources


def _copy(enqueue_op, source, path, number):
  with tf.name_scope("tf1ps_records"):
    handles = [_local_variable(tensor) for tensor in source]
    last = [tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.string) for handle in handles]
    puts = [tf.raw_ops.AssignVariableOp(resource=handle, value=tensor)
            for handle, tensor in zip(handles, source)]
  # One after the other: it costs more to pass one to another thread than to run it.
  waits = {op.name: puts[-1:] for op in path
           if any(tensor is one for tensor in op.inputs for one in source)}
  waits[puts[1].name] = puts[:1]
  copied = Subgraph.of_ops(puts + path).copy("tf1ps_records/copy", number, waits=waits)
  enqueue = copied.of(enqueue_op)
  return Copy(enqueue, source.keys, source.values, last[0], last[1], _counts(source),
              enqueue.name[:-len(enqueue_op.name)], enqueue_op)


def _counts(source):
  """Of the source's reader; of every one in the graph where the records come out of a queue."""
  ops = source.keys.graph.get_operations()
  reads = [source.keys.op] if source.keys.op.type in _READS else [
    op for op in ops if op.type in _READS]
  handles = {op.inputs[0].name: op.inputs[0] for op in reads}
  return [tf.raw_ops.ReaderNumRecordsProducedV2(reader_handle=handle)
          if handle.dtype == tf.resource else
          tf.raw_ops.ReaderNumRecordsProduced(reader_handle=handle)
          for _, handle in sorted(handles.items())]


def _local_variable(tensor):
  # No two sessions of one server shall meet in it.
  return tf.raw_ops.VarHandleOp(
    dtype=tf.string, shape=tensor.shape, shared_name="tf1ps_records_" + uuid.uuid4().hex)
