"""Notices lookups that read other rows of a partitioned table than those of the ids.

`tf.nn.embedding_lookup` and its kin have partition_strategy="mod" as their default: id i is row
i // n of shard i % n. The shards of a partitioner hold consecutive rows, so that such a model
trains on other rows than the same model with a whole table, and cannot use its checkpoint. Where
the program has divided the table, that is its own choice. Where a flag has, it must not happen.
"""

from __future__ import annotations

from typing import Iterable

import tensorflow.compat.v1 as tf

_GATHERS = frozenset(["ResourceGather", "GatherV2", "Gather"])
_SAME_VALUE = frozenset(["Identity", "Cast", "Reshape", "Enter", "Switch", "RefEnter", "RefSwitch"])


def check(table) -> None:
  """Refuses lookups by "mod" in what has been built so far.

  Args:
    table: a partitioned variable.

  Raises:
    ValueError: there is one.
  """
  for variable in table:
    for gather in _gathers(variable.op.outputs):
      divided = _source(gather.inputs[1])
      if divided.type != "DynamicPartition":
        continue
      if _source(divided.inputs[1]).type == "FloorMod":
        raise ValueError(
          "%s looks up the partitioned variable %s by the partition_strategy \"mod\", TensorFlow's "
          "default, which reads other rows than those of the ids: give partition_strategy=\"div\", "
          "or use tf1ps.transfer.embedding" % (gather.name, table.name))


def _gathers(tensors: Iterable[tf.Tensor]):
  """The operations that gather rows of these tensors, also of their reads."""
  for tensor in tensors:
    for consumer in tensor.consumers():
      if consumer.type in _GATHERS:
        yield consumer
      elif consumer.type in _SAME_VALUE:
        yield from _gathers(consumer.outputs)


def _source(tensor: tf.Tensor) -> tf.Operation:
  """The operation that makes a tensor's value."""
  while tensor.op.type in _SAME_VALUE:
    tensor = tensor.op.inputs[0]
  return tensor.op
