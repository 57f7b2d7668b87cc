"""What is handed out range by range under `--shard=dynamic`: files, or blocks of records."""

from __future__ import annotations

import hashlib
import os
from typing import List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import blocks as blocks_lib
from tf1ps.pipeline import claims as claims_lib

BATCHES_PER_BLOCK = 8  # of a block, where nobody says more of it
_SEED = 1  # of the order of ranges that are shuffled, the same for all workers


class Work(NamedTuple):
  """What is handed out."""

  claims: claims_lib.Claims  # this worker's
  digest: str  # of what the ranges are
  count: Optional[int]  # of the ranges; None: of the blocks, once they are counted
  blocks: Optional[blocks_lib.Blocks]  # or None where the ranges are files


def obstacle(graph: tf.Graph) -> Optional[str]:
  """Says why the input of a graph cannot begin another pass, and what to do; None if it can."""
  text = ("under --shard=dynamic the input begins again when ranges of a lost worker come back, or "
          "with another epoch: ")
  if any(op.type == "OneShotIterator" for op in graph.get_operations()):
    return text + ("use tf.data.make_initializable_iterator in the place of make_one_shot_iterator,"
                   " or have input_fn return the dataset itself")
  if graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS):
    return text + ("a queue that a queue runner has closed stays closed; make batches by tf.data "
                   "(dataset.batch, tf1ps.pipeline.datasets)")
  return None


def of_files(owner: int, paths: List[str], shuffle: bool = False) -> Work:
  """Hands out files.

  Args:
    owner: this worker's index.
    paths: all files, sorted; their folders may differ between workers.
    shuffle: whether they come in another order in each epoch.
  """
  names = "\0".join(os.path.basename(path) for path in paths)
  digest = hashlib.sha256(names.encode("utf-8")).hexdigest()[:16]
  return Work(claims_lib.Claims(owner, _SEED if shuffle else None), digest, len(paths), None)


def of_blocks(owner: int, dataset: tf.data.Dataset, size: int,
              shuffle: Optional[int] = None) -> Work:
  """Hands out blocks of records.

  Args:
    owner: this worker's index.
    dataset: of single records, in the same order on all workers.
    size: records in a block, the same on all workers.
    shuffle: size of the buffer that shuffles the records of a block, where blocks, too, come in
      another order in each epoch; None: in order.
  """
  claims = claims_lib.Claims(owner, _SEED if shuffle else None)
  blocks = blocks_lib.Blocks(dataset, size, claims, shuffle)
  return Work(claims, "blocks of %d" % size, None, blocks)
