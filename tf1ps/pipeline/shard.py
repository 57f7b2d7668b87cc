"""The share: which part of the data a worker trains on.

A program's `input_fn(mode, shard)` gets a `Shard` and asks it for this worker's part:

1. `shard.files(pattern)` divides the files, `shard.dataset(dataset)` the records;
2. whichever comes first divides, so that a program which lists its files and makes a dataset of
   them may ask for both, in this order, and nothing is divided twice;
3. `shard.dataset` then shuffles, when asked, and repeats for the epochs;
4. `check_asked` refuses a program that trains on several workers and divided nothing: each of them
   would train on all of the data.

The policy names what is divided: "files", "records", "dynamic" or "none". None, the default,
leaves it to the program. Under "dynamic" nothing is divided beforehand: whoever needs the next
file, or the next block of records, claims it (claims.py), so that a fast worker gets more of them,
and what a worker held that has gone comes back. Evaluation and prediction see all the data once:
nothing is divided, shuffled, repeated.
"""

from __future__ import annotations

import os
from typing import Any, List, NamedTuple, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.cluster import nearest_name
from tf1ps.compat import Error
from tf1ps.pipeline import autotuning, ranges
from tf1ps.pipeline import work as work_lib
from tf1ps.pipeline.choices import FILES, NONE, RECORDS, SHARD_DYNAMIC
from tf1ps.pipeline.choices import SHARDS as POLICIES

_MODES = ("train", "eval", "predict")
_ONCE = ("under --shard=dynamic a program may ask its shard once for what is handed out: one call "
         "of shard.files, or of shard.dataset without it")
# What a program has to say under each policy.
_FILES_LINE = "`files = shard.files(pattern)`"
_RECORDS_LINE = "`dataset = shard.dataset(dataset)`"
_EITHER_LINE = f"{_RECORDS_LINE} or {_FILES_LINE}"
_LINES = {
  FILES: _FILES_LINE, RECORDS: _RECORDS_LINE, SHARD_DYNAMIC: _EITHER_LINE, None: _EITHER_LINE}


class Sources(NamedTuple):
  """The files that a worker reads."""

  paths: List[str]  # sorted
  claims: Optional[Any] = None  # dataset of int64: which of them in which order; None: all of them


class ShardError(Error, ValueError):
  """The data cannot be divided, or was not."""


class Shard:
  """One worker's share of the data.

  Attributes:
    index: this worker's place among the job's replicas, from 0.
    count: how many replicas the job has; 1 unless the mode is "train".
    batch_size: examples in a batch of one worker.
    epochs: how often all workers together go through the data in training; None: without end.
    policy: "files", "records", "dynamic", "none", or None for the default.
    mode: "train", "eval" or "predict".
    block_size: records in a block that is claimed, the same in all workers; by default 8 batches.
    divided: what was divided so far: "files", "records", "dynamic", or None for nothing.
    work: under "dynamic" what is handed out, or None before anything was asked for.
  """

  def __init__(self, index: int = 0, count: int = 1, batch_size: int = 1,
               epochs: Optional[int] = None, policy: Optional[str] = None, mode: str = "train",
               block_size: Optional[int] = None):
    """Creates the share; the arguments are the attributes of that name.

    Raises:
      ShardError: a value that is none of the above.
    """
    if mode not in _MODES:
      raise ShardError(f"mode must be one of {', '.join(_MODES)}, got {mode!r}")
    if count < 1 or not 0 <= index < count:
      raise ShardError(f"index must be 0 to count - 1, got index {index} and count {count}")
    if mode != "train" and count != 1:
      raise ShardError(f"mode {mode!r} sees all the data: count must be 1, got {count}")
    if batch_size < 1:
      raise ShardError(f"batch_size must be at least 1, got {batch_size}")
    if epochs is not None and epochs < 1:
      raise ShardError(f"epochs must be at least 1, or None for no end, got {epochs}")
    if policy is not None and policy not in POLICIES:
      raise ShardError(f"there is no shard policy {policy!r}: {nearest_name(policy, POLICIES)}")
    self.index = index
    self.count = count
    self.batch_size = batch_size
    self.epochs = epochs
    self.policy = policy
    self.mode = mode
    self.block_size = block_size or work_lib.BATCHES_PER_BLOCK * batch_size
    self.divided: Optional[str] = None
    self.work: Optional[work_lib.Work] = None
    self._was_asked = False

  @property
  def was_asked(self) -> bool:
    """Whether the program has asked for anything."""
    return self._was_asked

  @property
  def is_dynamic(self) -> bool:
    """Whether ranges of the data are claimed one by one."""
    return self.policy == SHARD_DYNAMIC and self.mode == "train"

  def files(self, pattern: Union[str, Sequence[str]]) -> Union[List[str], tf.data.Dataset]:
    """Lists this worker's files.

    Args:
      pattern: a pattern such as "data/*.csv", a file's name, or a list of such. All workers must
        see the same files under the same names.

    Returns:
      Sorted names: every count-th file from index on if files are divided, else all files. Under
      "dynamic" a dataset of names, of the files that this worker claims one by one, which
      `tf.data.TextLineDataset` and its kin take as they take a list.

    Raises:
      ShardError: no file, fewer files than workers, or records were divided before.
    """
    found = self._find(pattern)
    if not self.is_dynamic:
      return self._part_of(found)
    names = tf.constant(found)
    return autotuning.without(self._claim_files(found).dataset()).map(
      lambda claim: tf.gather(names, claim % ranges.EPOCH))

  def sources(self, pattern: Union[str, Sequence[str]], shuffle: bool = False) -> Sources:
    """Lists the files whose records this worker reads, and gives to `dataset`, in training.

    Args:
      pattern: as for `files`.
      shuffle: whether files that are claimed come in another order in each epoch.

    Returns:
      This worker's files; all of them where records are to be divided, as also where there are
      fewer files than workers and the policy leaves it open, and where files are claimed.
    """
    found = self._find(pattern)
    if self.is_dynamic:
      return Sources(found, self._claim_files(found, shuffle).dataset())
    is_few = self.policy is None and len(found) < self.count
    return Sources(found if is_few else self._part_of(found))

  def _find(self, pattern):
    """All files, of all workers."""
    patterns = [pattern] if isinstance(pattern, (str, os.PathLike)) else list(pattern)
    if not patterns:
      raise ShardError("shard.files got an empty list")
    self._was_asked = True
    return sorted({name for each in patterns for name in _glob(os.fspath(each))})

  def _part_of(self, found):
    if self.count == 1 or self.policy in (RECORDS, NONE):
      return found
    if self.divided == RECORDS:
      raise ShardError(
        "shard.files was called after shard.dataset, which has divided records: call shard.files "
        "first, or say --shard=records if only records are to be divided")
    if len(found) < self.count:
      raise ShardError(
        f"{self.count} workers cannot share {len(found)} file{'s' if len(found) > 1 else ''}, "
        f"{', '.join(found)}: use --shard=records together with shard.dataset, which divides the "
        f"records, or give at least {self.count} files")
    self.divided = FILES
    return found[self.index::self.count]

  def _claim_files(self, found, shuffle=False):
    if self.work is not None:
      raise ShardError(_ONCE)
    self.work = work_lib.of_files(self.index, found, shuffle)
    self.divided = SHARD_DYNAMIC
    return self.work.claims

  def dataset(self, dataset: tf.data.Dataset, shuffle: Optional[int] = None) -> tf.data.Dataset:
    """Takes this worker's records; in training also shuffles and repeats them.

    Args:
      dataset: a dataset of single records, in the same order on all workers, or of the records of
        this worker's files. The program batches what comes back.
      shuffle: size in records of the buffer that shuffles, anew in each epoch; None: in order.

    Returns:
      A dataset of every count-th record from index on if records are divided, else of all records.
      Under "dynamic", unless its records are those of `files`, of the blocks that this worker
      claims one by one, each shuffled in itself.

    Raises:
      ShardError: no dataset, or a buffer of no size.
    """
    if not hasattr(dataset, "shard"):  # there are two classes, of TensorFlow 1 and 2
      raise ShardError(f"shard.dataset takes a tf.data.Dataset, got {dataset!r}")
    if shuffle is not None and shuffle < 1:
      raise ShardError(f"shuffle is the size of a buffer and at least 1, or None, got {shuffle}")
    self._was_asked = True
    dataset = autotuning.without(dataset)
    if self.mode != "train":
      return dataset
    if self.is_dynamic and self.work is not None and self.work.blocks is not None:
      raise ShardError(_ONCE)
    if self.is_dynamic and self.work is None:
      self.work = work_lib.of_blocks(self.index, dataset, self.block_size, shuffle)
      self.divided = SHARD_DYNAMIC
      return self.work.blocks.dataset
    # By default records, unless they come from this worker's own files.
    if self.policy == RECORDS or (self.policy is None and self.divided != FILES):
      dataset = dataset.shard(self.count, self.index)
      self.divided = RECORDS
    if shuffle is not None:
      dataset = dataset.shuffle(shuffle, reshuffle_each_iteration=True)
    return dataset if self.is_dynamic else dataset.repeat(self.epochs)


def check_asked(shard: Shard) -> None:
  """Refuses a program that trains on more than one worker and never divided its data.

  Args:
    shard: the share that the program's input_fn was called with.

  Raises:
    ShardError: says which line to add, or to change.
  """
  obstacle = None if shard.work is None else work_lib.obstacle(tf.get_default_graph())
  if obstacle:
    raise ShardError(obstacle)
  if shard.count == 1 or shard.policy == NONE or shard.divided is not None:
    return
  if shard.was_asked:
    problem = f"divided nothing under --shard={shard.policy}"
  else:
    problem = "asked its shard for nothing"
  raise ShardError(
    f"input_fn {problem}, so each of the {shard.count} workers would train on all of the data: "
    f"add {_LINES[shard.policy]}, or say --shard=none if that is what you want")


def _glob(pattern: str) -> List[str]:
  # A name with brackets in it is a pattern that does not match itself.
  found = [pattern] if tf.gfile.Exists(pattern) else tf.gfile.Glob(pattern)
  if not found:
    raise ShardError(f"no file matches {pattern!r}")
  return [tf.compat.as_str_any(name) for name in found]
