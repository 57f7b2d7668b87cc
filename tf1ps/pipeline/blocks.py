"""Blocks of records: the ranges of a dataset that is not divided by files.

1. The records are counted once, at the start of training: as the dataset says, or else by reading
   it (`Blocks.count`).
2. Each claim is a block of so many records in a row. The records before it are read past, which is
   fast where the data are in memory; large files are better divided as files.
3. With `shuffle`, the blocks come in another order in each epoch, and each is shuffled in itself,
   so that the records of a block still come out together.
4. While nothing behind changes the order or the number of records (`order_is_kept`), the n-th
   example that was trained on is the n-th record that was read: `trained` tells the claims.
"""

from __future__ import annotations

import logging
import time
from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error
from tf1ps.pipeline import claims as claims_lib
from tf1ps.pipeline import ranges

_log = logging.getLogger("tf1ps")
_ENDLESS = -1  # a cardinality
_KEEPING = (  # datasets that keep records in their order, and lose none before their end
  "MapDataset", "ParallelMapDataset", "MapAndBatchDataset", "BatchDataset", "ParallelBatchDataset",
  "PaddedBatchDataset", "PrefetchDataset", "OptionsDataset", "ModelDataset", "OptimizeDataset")


class EndlessError(Error, ValueError):
  """The dataset has no end."""


class Blocks:
  """A dataset in blocks.

  Attributes:
    dataset: the records of the blocks that this worker claims.
    records: how many records the dataset has; None before they are counted.
  """

  def __init__(self, dataset: tf.data.Dataset, size: int, claims: claims_lib.Claims,
               shuffle: Optional[int] = None):
    """Builds the dataset, in the default graph.

    Args:
      dataset: of single records, in the same order on all workers.
      size: records in a block; the last one may have less.
      claims: this worker's.
      shuffle: the size of the buffer that shuffles the records of a block, or None.
    """
    self.size = size
    self._claims = claims
    self.records: Optional[int] = None
    self._cardinality = tf.data.experimental.cardinality(dataset)
    self._counted = dataset.reduce(
      tf.constant(0, tf.int64), lambda count, *unused_record: count + 1)

    def block(found):
      records = dataset.skip(found % ranges.EPOCH * size).take(size)
      return records if shuffle is None else records.shuffle(min(shuffle, size))

    self.dataset = claims.dataset().flat_map(block)
    self._graph = tf.get_default_graph()
    self._built = len(self._graph.get_operations())

  def count(self, session: tf.Session) -> int:
    """Counts the blocks, and with them the records; raises EndlessError."""
    if self.records is None:
      records = int(session.run(self._cardinality))
      if records == _ENDLESS:
        raise EndlessError("shard.dataset got a dataset without an end, which has no ranges that "
                           "could be done: give it the data once, without repeat()")
      if records < 0:  # not known
        began = time.monotonic()
        records = int(session.run(self._counted))
        _log.info("counted the %d records of the data in %.1f s, for --shard=dynamic", records,
                  time.monotonic() - began)
      self.records = records
    return -(-self.records // self.size)

  def order_is_kept(self) -> bool:
    """Whether all datasets that were built behind this one keep the order and number of records.

    What maps whole batches may change their size.
    """
    is_batched = False
    for op in self._graph.get_operations()[self._built:]:
      kind = _without_version(op.type)
      is_map = "Map" in kind
      if op.type.startswith("RandomShuffle") or "Dataset" in kind and (
          kind not in _KEEPING or is_map and (is_batched or _is_sloppy(op))):
        return False
      is_batched |= "Batch" in kind and "Dataset" in kind
    return True

  def trained(self, examples: int) -> None:
    """Tells the claims of examples that were trained on, in the order of the records."""
    held: List[int] = self._claims.in_order()
    for found in held:
      if not examples:
        return
      left = self._size_of(found) - self._claims.trained_of(found)
      part = min(examples, left)
      self._claims.note_trained(found, part, is_done=part == left)
      examples -= part

  def _size_of(self, found: int) -> int:
    return min(self.size, self.records - found % ranges.EPOCH * self.size)


def _is_sloppy(op):
  attributes = op.node_def.attr
  return attributes["sloppy"].b or attributes["deterministic"].s == b"false"


def _without_version(op_type: str) -> str:
  """Such as "BatchDataset" of "BatchDatasetV2" and "ExperimentalMapAndBatchDataset"."""
  stem = op_type.rstrip("0123456789")
  stem = stem[:-1] if stem != op_type and stem.endswith("V") else stem
  return stem[len("Experimental"):] if stem.startswith("Experimental") else stem
