"""The part of the data that a worker trains on.

A program's `input_fn(mode, shard)` gets a `Shard` and asks it for this worker's part:

1. `shard.files(pattern)` divides the files, `shard.dataset(dataset)` divides the records.
2. The first of the two calls divides. So a program may list its files, make a dataset of them, and
   call both in this order; nothing is divided twice.
3. `shard.dataset` then shuffles the records, if the program asks for it, and repeats them for the
   epochs.
4. `check_asked` refuses a program that trains on several workers and divided nothing, because each
   worker would train on all the data.

The policy names what is divided: "files", "records", "dynamic" or "none". None, the default, leaves
the choice to the program. Under "dynamic" nothing is divided in advance: a worker that needs the
next file, or the next block of records, leases it (leases.py). So a fast worker gets more files or
blocks, and the leases of a lost worker are granted to other workers. Evaluation and prediction read
all the data once: nothing is divided, shuffled or repeated.
"""

from __future__ import annotations

import os
from typing import List, NamedTuple, Optional, Sequence, Union

import tensorflow.compat.v1 as tf

from tf1ps.cluster import nearest_name
from tf1ps.compat import Error, near_path
from tf1ps.pipeline import iterators, lease_table, leases
from tf1ps.pipeline.input_options import FILES, NONE, RECORDS, SHARD_DYNAMIC
from tf1ps.pipeline.input_options import SHARDS as POLICIES

_MODES = ("train", "eval", "predict")
_ONCE = ("under --shard=dynamic a program may lease one set of ranges. Call shard.files once, or "
         "shard.dataset once without shard.files.")
# The line that a program needs under each policy.
_FILES_LINE = "`files = shard.files(pattern)`"
_RECORDS_LINE = "`dataset = shard.dataset(dataset)`"
_EITHER_LINE = f"{_RECORDS_LINE} or {_FILES_LINE}"
_LINES = {
  FILES: _FILES_LINE, RECORDS: _RECORDS_LINE, SHARD_DYNAMIC: _EITHER_LINE, None: _EITHER_LINE}


class Sources(NamedTuple):
  """The files that a worker reads."""

  paths: List[str]  # sorted
  # The indices of the files that this worker leases, int64 scalars; None: all files, in order.
  leased: Optional[tf.data.Dataset] = None


class ShardError(Error, ValueError):
  """The data cannot be divided, or the program did not divide it."""


class Shard:
  """One worker's share of the data.

  Attributes:
    index: this worker's index among the job's replicas, from 0.
    count: the number of replicas of the job; 1 unless the mode is "train".
    batch_size: examples per batch of a worker.
    epochs: how often all workers together train on the data; None: without end.
    policy: "files", "records", "dynamic", "none", or None for the default.
    mode: "train", "eval" or "predict".
    block_size: records per block that is leased, the same on all workers; by default 8 batches.
    divided: what was divided so far: "files", "records", "dynamic", or None for nothing.
    leased: under "dynamic" the `LeasedData`; None before the program asked for data.
    range_reports: a `RangeReport` for each input whose batches report the ranges of their records.
    was_asked: whether the program has asked for data.
    sizes: the records of this worker's part, once for each set of records that was divided: ints,
      or int64 scalars, which are negative if the number is not known.
  """

  def __init__(self, index: int = 0, count: int = 1, batch_size: int = 1,
               epochs: Optional[int] = None, policy: Optional[str] = None, mode: str = "train",
               block_size: Optional[int] = None):
    """Creates the share from its attributes; raises ShardError for an attribute's wrong value."""
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
      raise ShardError(f"{policy!r} is not a shard policy: {nearest_name(policy, POLICIES)}")
    self.index, self.count, self.batch_size, self.epochs = index, count, batch_size, epochs
    self.policy, self.mode = policy, mode
    self.block_size = block_size or leases.BATCHES_PER_BLOCK * batch_size
    self.divided: Optional[str] = None
    self.leased: Optional[leases.LeasedData] = None
    self.range_reports: List[leases.RangeReport] = []
    self.was_asked = False
    self.sizes: List[Union[int, tf.Tensor]] = []

  @property
  def is_dynamic(self) -> bool:
    """Whether workers lease ranges of the data."""
    return self.policy == SHARD_DYNAMIC and self.mode == "train"

  def files(self, pattern: Union[str, Sequence[str]]) -> Union[List[str], tf.data.Dataset]:
    """Lists this worker's files.

    Args:
      pattern: a pattern such as "data/*.csv", a file's name, or a list of patterns and names. All
        workers must see the same files under the same names.

    Returns:
      Sorted names: every count-th file from `index` on if files are divided, else all files. Under
      "dynamic" a dataset of the names of the files that this worker leases.
      `tf.data.TextLineDataset` and similar datasets take it in place of a list.

    Raises:
      ShardError: no file matches, there are fewer files than workers, or records were divided
        before.
    """
    paths = self._find(pattern)
    if not self.is_dynamic:
      return self._part_of(paths)
    names = tf.constant(paths)
    return self._lease_files(paths).dataset().map(
      lambda number: tf.gather(names, number % lease_table.EPOCH))

  def sources(self, pattern: Union[str, Sequence[str]], shuffle: bool = False) -> Sources:
    """Lists the files whose records this worker reads; the caller gives the records to `dataset`.

    The result has all files if files are leased or records are divided. It also has all files if
    the policy is None and there are fewer files than workers. `pattern` is as for `files`;
    `shuffle` gives leased files a different order in each epoch.
    """
    paths = self._find(pattern)
    if self.is_dynamic:
      return Sources(paths, self._lease_files(paths, shuffle).dataset())
    is_few = self.policy is None and len(paths) < self.count
    return Sources(paths if is_few else self._part_of(paths))

  def _find(self, pattern):
    """Returns all files, of all workers."""
    patterns = [pattern] if isinstance(pattern, (str, os.PathLike)) else list(pattern)
    if not patterns:
      raise ShardError("shard.files got an empty list")
    self.was_asked = True
    return sorted({name for each in patterns for name in _glob(os.fspath(each))})

  def _part_of(self, paths):
    if self.count == 1 or self.policy in (RECORDS, NONE):
      return paths
    if self.divided == RECORDS:
      raise ShardError(
        "shard.files was called after shard.dataset, which divided the records. Call shard.files "
        "first, or give --shard=records to divide only records.")
    if len(paths) < self.count:
      raise ShardError(
        f"{self.count} workers cannot share {len(paths)} file{'s' if len(paths) > 1 else ''}, "
        f"{', '.join(paths)}. Use --shard=records with shard.dataset, which divides the "
        f"records, or give at least {self.count} files.")
    self.divided = FILES
    return paths[self.index::self.count]

  def _lease_files(self, paths, shuffle=False):
    if self.leased is not None:
      raise ShardError(_ONCE)
    self.leased = leases.lease_files(self.index, paths, shuffle)
    self.divided = SHARD_DYNAMIC
    return self.leased.leases

  def dataset(self, dataset: tf.data.Dataset, shuffle: Optional[int] = None) -> tf.data.Dataset:
    """Selects this worker's records; in training also shuffles and repeats them.

    Args:
      dataset: a dataset of single records, in the same order on all workers, or of the records of
        this worker's files. The program batches the result.
      shuffle: the size of the shuffle buffer in records, with a different order in each epoch;
        None: records keep their order.

    Returns:
      A dataset of every count-th record from `index` on if records are divided, else of all
      records. Under "dynamic", unless the records come from the files of `files`: a dataset of the
      blocks that this worker leases, with each block shuffled separately.

    Raises:
      ShardError: `dataset` is not a dataset, or `shuffle` is less than 1.
    """
    if not hasattr(dataset, "shard"):  # there are two classes, of TensorFlow 1 and 2
      raise ShardError(f"shard.dataset takes a tf.data.Dataset, got {dataset!r}")
    if shuffle is not None and shuffle < 1:
      raise ShardError(f"shuffle must be a buffer size of at least 1, or None, got {shuffle}")
    self.was_asked = True
    dataset = iterators.without_autotuning(dataset)
    if self.mode != "train":
      return dataset
    if self.is_dynamic and self.leased is not None and self.leased.blocks is not None:
      raise ShardError(_ONCE)
    if self.is_dynamic and self.leased is None:
      self.leased = leases.lease_blocks(self.index, dataset, self.block_size, shuffle)
      self.divided = SHARD_DYNAMIC
      return self.leased.blocks.dataset  # type: ignore[union-attr]  # lease_blocks makes blocks
    # By default records are divided, unless they come from this worker's own files.
    if self.policy == RECORDS or (self.policy is None and self.divided != FILES):
      dataset = dataset.shard(self.count, self.index)
      self.divided = RECORDS
    self.sizes.append(tf.data.experimental.cardinality(dataset))
    if shuffle is not None:
      dataset = dataset.shuffle(shuffle, reshuffle_each_iteration=True)
    return dataset if self.is_dynamic else dataset.repeat(self.epochs)


def check_asked(shard: Shard) -> None:
  """Refuses a program that trains on more than one worker and did not divide its data.

  Call it after the input_fn that got the shard, with its input in the default graph. Raises
  ShardError, which names the line to add or to change.
  """
  problem = None if shard.leased is None else leases.restart_problem(tf.get_default_graph())
  if problem:
    raise ShardError(problem)
  if shard.count == 1 or shard.policy == NONE or shard.divided is not None:
    return
  if shard.was_asked:
    problem = f"divided nothing under --shard={shard.policy}"
  else:
    problem = "did not ask its shard for data"
  raise ShardError(
    f"input_fn {problem}, so each of the {shard.count} workers would train on all the data. Add "
    f"{_LINES[shard.policy]}, or give --shard=none if every worker should read all of it.")


def check_at_least(name: str, value: int, least: int) -> None:
  """Raises ValueError if the argument `name` is not an integer of at least `least`."""
  if isinstance(value, bool) or not isinstance(value, int) or value < least:
    raise ValueError("%s must be an integer of at least %d, got %r" % (name, least, value))


def _glob(pattern: str) -> List[str]:
  # A name with brackets is a pattern that does not match itself.
  try:
    paths = [pattern] if tf.gfile.Exists(pattern) else tf.gfile.Glob(pattern)
  except tf.errors.NotFoundError:  # TensorFlow 1.15 raises it if the folder does not exist
    paths = []
  if not paths:
    raise ShardError(f"no file matches {pattern!r}{near_path(pattern)}")
  return [tf.compat.as_str_any(name) for name in paths]
