"""Suggests options that suit a model better; the chief logs each hint once, at its start."""

from __future__ import annotations

import collections
from typing import Dict

import tensorflow.compat.v1 as tf

from tf1ps.placement import byte_size_load_fn
from tf1ps.transfer import AdamOptimizer

_MANY_SHARDS = 16  # shards of tables on each ps; a shard adds operations to every use and update
_GOOD_SHARDS = 4
_LARGE_TABLE = 16 << 20  # bytes; a dense Adam reads and writes three times as many in each step


def of_shards(partition_bytes: int, num_ps: int) -> str:
  """Returns a hint at a better --partition_bytes for the default graph's model, or "".

  Args:
    partition_bytes: the value of the option.
    num_ps: the number of ps, at least 1.
  """
  sizes, count = collections.Counter(), 0
  for variable in tf.trainable_variables():
    table = variable.to_proto().save_slice_info_def.full_name
    if table:
      sizes[table] += _bytes(variable)
      count += 1
  if count <= _MANY_SHARDS * num_ps:
    return ""
  better = max(1, -(-sum(sizes.values()) // (_GOOD_SHARDS * num_ps)))
  better = 1 << (better - 1).bit_length()
  # A table above the bound has at least one shard on each ps.
  then = sum(max(num_ps, -(-size // better)) for size in sizes.values() if size > better)
  if 2 * then > count:
    return ""  # many tables
  return ("--partition_bytes=%d makes %d shards, %d on each ps, and a large graph: give "
          "--partition_bytes=%d, which makes %d" % (
            partition_bytes, count, -(-count // num_ps), better, then))


def of_adam(optimizer, grads_and_vars: list, is_own: bool) -> str:
  """Returns a hint at a lazy Adam if Adam updates a large table by sparse gradients, or "".

  TensorFlow's Adam updates all rows of the table and of its two slots, also those without a
  gradient. Subclasses of it may not, so they get no hint.

  Args:
    optimizer: makes the update.
    grads_and_vars: pairs (gradient, variable), as `compute_gradients` returns them.
    is_own: whether the program has brought the optimizer.
  """
  if type(optimizer) not in (tf.train.AdamOptimizer, AdamOptimizer):
    return ""
  tables: Dict[str, int] = collections.Counter()
  for gradient, variable in grads_and_vars:
    if isinstance(gradient, tf.IndexedSlices):
      table = variable.to_proto().save_slice_info_def.full_name or variable.op.name
      tables[table] += _bytes(variable)
  large = {table: size for table, size in tables.items() if size >= _LARGE_TABLE}
  if not large:
    return ""
  table = max(large, key=large.get)
  return ("Adam updates every row of %s (%.0f MB, and as much for each of its two slots) in each "
          "step: %s updates the rows of the batch alone" % (
            table, large[table] / 1e6, "tf1ps.transfer.LazyAdamOptimizer" if is_own
            else "--optimizer=lazy_adam"))


def _bytes(variable) -> int:
  try:
    return byte_size_load_fn(variable.op)
  except ValueError:  # the shape is not fully known
    return 0
