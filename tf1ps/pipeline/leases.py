"""One worker's leases on ranges of the data (`--shard=dynamic`): files, or blocks of records.

`WorkerLeases` connects the table of all workers (lease_table.py) with this worker's input pipeline:

1. `dataset` yields the ranges that this worker leases, a range each time the pipeline asks. A
   separate thread takes the lease, because a pipeline's own thread must not wait for a session.
2. When no lease is left to take, the dataset ends, so that shuffle buffers and unfinished batches
   are emptied. This ends a pass. The next pass begins when the dataset's iterator is initialised
   again.
3. `note_trained` counts the examples that the worker trained on. A range is done when all its
   examples were trained on. If the program's own pipeline changes the order of records, all ranges
   of a pass are done when the pass has ended (`finish_pass`).
4. About once per second the thread reports finished and partly finished ranges to the table.

`lease_files` and `lease_blocks` make the leases for a shard. `Blocks` divides a dataset into blocks
of records.
"""

from __future__ import annotations

import collections
import hashlib
import logging
import os
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, Error
from tf1ps.pipeline.iterators import (
  KEEPING,
  generated,
  iterator_initializers,
  without_autotuning,
  without_version,
)
from tf1ps.pipeline.lease_table import EPOCH, LeaseState, StaleSessionError, range_of
from tf1ps.pipeline.record_positions import MAX_EPOCHS
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")
BATCHES_PER_BLOCK = 8  # the default size of a block
_SEED = 1  # the seed of the order of shuffled ranges, which is the same on all workers
_NOTHING_YET, _END = -1, -2
_ENDLESS = -1  # a cardinality

# Calls a function with the `LeaseState` of all workers, and returns its result.
Change = Callable[[Callable[[LeaseState], object]], object]


class EndlessDatasetError(Error, ValueError):
  """The dataset has no end."""


class WorkerLeases:
  """One worker's leases.

  Attributes:
    owner: the worker's index.
    by_epoch: whether a pass ends with its epoch, so that all its ranges are done at the end.
    was_asked: whether the pipeline has asked for a range since the pass began.
  """

  def __init__(self, owner: int, seed: Optional[int] = None):
    """Creates the leases of worker `owner`; `seed` as for `lease_table.range_of`."""
    self.owner = owner
    self.by_epoch = False
    self._seed = seed
    self._condition = threading.Condition()
    self._exchanging = threading.Lock()
    self._pass = 0  # the number of the pass; a generator of an earlier pass ends
    self._start_pass()
    self._change: Optional[Change] = None

  def _start_pass(self):
    self._pass += 1
    self._is_wanted = self._has_ended = self.was_asked = False
    self._epoch: Optional[int] = None
    self._new = collections.deque()  # leased ranges that the pipeline has not taken yet
    self._held: Dict[int, int] = collections.OrderedDict()  # {range: lease}, in reading order
    self._leases: Dict[int, int] = {}  # the same, with the leases that were released
    self._trained: Dict[int, int] = {}  # {range: examples}
    self._done: List[int] = []  # leases, not yet reported

  def dataset(self) -> tf.data.Dataset:
    """Returns the ranges of a pass: int64 scalars, epoch * 2^32 + the range's index.

    The epoch is modulo `record_positions.MAX_EPOCHS`.
    """
    def generate():
      number = self._pass
      range_ = self._next(number)
      while range_ != _END:
        yield range_
        range_ = self._next(number)

    numbers = generated(generate, tf.TensorSpec([], tf.int64))
    # The records are read inside of flat_map, and the options of a dataset in flat_map are not
    # passed on.
    return without_autotuning(numbers.filter(lambda range_: range_ >= 0))

  def _next(self, number):
    with self._condition:
      self.was_asked |= number == self._pass
      if not self._new and not self._has_ended and number == self._pass:
        self._is_wanted = True
        self._condition.notify_all()
        self._condition.wait(TIMING.local_poll_interval)
      if number != self._pass:
        return _END
      if self._new:
        return self._new.popleft()
      return _END if self._has_ended else _NOTHING_YET

  # Sessions and passes.

  def begin_session(self, change: Change) -> None:
    """Begins the first pass of a session, before the session's iterators are initialised.

    `change` changes the table. It raises ControlError if the server does not answer, and
    StaleSessionError if the session must no longer change the table.
    """
    with self._condition:
      self._change = change
      self._start_pass()
    self._report()  # returns the leases of this worker's earlier session or process
    threading.Thread(target=self._work, args=(change,), daemon=True, name="tf1ps: leases").start()

  def begin_pass(self) -> bool:
    """Begins the next pass after `finish_pass`; returns False if no lease is left to take."""
    if not self._change(lambda state: state.has_more):
      return False
    with self._condition:
      self._start_pass()
    return True

  def end(self) -> None:
    """Ends the thread, which then leases and reports nothing more."""
    with self._condition:
      self._change, self._has_ended = None, True
      self._condition.notify_all()

  def release(self) -> None:
    """Reports finished ranges and returns the other leases; the session takes no more leases."""
    with self._exchanging:
      with self._condition:
        self._new.clear()
        self._held.clear()
        self._has_ended, self._is_wanted = True, False
      self._exchange()

  def finish_pass(self) -> bool:
    """Notes that all records that the pass has read were trained on, and reports this.

    Returns False if the pipeline ended before the pass ended. Then it is unknown which records the
    pipeline left out, so all leases are released.
    """
    with self._condition:
      has_ended = self._has_ended and not self._new
      if has_ended:
        for range_ in list(self._held):
          self._finish(range_)
    if has_ended:
      self._report()
    else:
      self.release()
    return has_ended

  # Examples.

  def held(self) -> List[int]:
    """Returns the leased ranges, in the order in which the pipeline reads them."""
    with self._condition:
      return list(self._held)

  def trained_of(self, range_: int) -> int:
    """Returns how many examples of a range were trained on so far."""
    return self._trained.get(range_, 0)

  def note_trained(self, range_: int, examples: int, is_done: bool) -> None:
    """Counts examples of a range that were trained on; ends its lease if `is_done`."""
    with self._condition:
      if range_ in self._held:
        self._trained[range_] = self._trained.get(range_, 0) + examples
        if is_done:
          self._finish(range_)

  def _finish(self, range_):
    self._done.append(self._held.pop(range_))
    self._trained.pop(range_, None)
    del self._leases[range_]

  # The table.

  def _work(self, change):
    while True:
      with self._condition:
        if self._change is change and not self._is_wanted:
          self._condition.wait(TIMING.range_report_interval)
        if self._change is not change:
          return
      try:
        self._report()
      except StaleSessionError:
        return  # the session is about to end
      except ControlError as error:
        _log.info("the table of ranges of the data does not answer: %s", error)
        threading.Event().wait(TIMING.local_poll_interval)

  def _report(self):
    with self._exchanging:  # another thread must not return a lease that this thread is taking
      self._exchange()

  def _exchange(self):
    """Reports the ranges that are done, and takes a lease if the pipeline wants a range."""
    with self._condition:
      number, change = self._pass, self._change
      done, held = list(self._done), list(self._held.values())
      trained = {self._leases[range_]: count for range_, count in self._trained.items()}
      is_wanted, epoch = self._is_wanted, self._epoch
    if change is None:
      return

    def transact(state):
      state.done(self.owner, done)
      state.note_trained(self.owner, trained)
      # If the table has a lease of this worker that is not held, the lease is from an earlier
      # session, or the answer that granted it was lost.
      state.return_leases(self.owner, held)
      lease = (state.grant(self.owner, epoch if self.by_epoch else None, held)
               if is_wanted else None)
      return lease, state.value["count"]

    lease, count = change(transact)
    with self._condition:
      if number != self._pass:
        return
      self._done = self._done[len(done):]
      if is_wanted:
        self._take(lease, count)

  def _take(self, lease, count):
    self._is_wanted = False
    if lease is None:
      self._has_ended = True
    else:
      # As the records report the range: their positions distinguish only MAX_EPOCHS epochs.
      range_ = range_of(lease, count, self._seed) % (MAX_EPOCHS * EPOCH)
      self._epoch = lease // EPOCH
      self._held[range_] = self._leases[range_] = lease
      self._new.append(range_)
    self._condition.notify_all()


class Blocks:
  """A dataset that is leased in blocks of records.

  1. The records are counted once, when training starts: by the dataset's cardinality, or by reading
     the dataset if the cardinality is unknown (`count`).
  2. Each range is a block of `size` consecutive records. The records before the block are skipped
     by reading them, which is fast in memory. Large files are better leased as files.
  3. With `shuffle` the blocks come in a different order in each epoch. The records are shuffled
     only within each block, so that the records of a block stay together.
  4. As long as later datasets keep the order and number of records (`order_is_kept`),
     the n-th trained example is the n-th record that was read, and `trained` can count by block.

  Attributes:
    dataset: the records of the blocks that this worker leases.
    records: the number of records in the dataset; None before they are counted.
  """

  def __init__(self, dataset: tf.data.Dataset, size: int, leases: WorkerLeases,
               shuffle: Optional[int] = None):
    """Builds the dataset, in the default graph.

    Args:
      dataset: a dataset of single records, in the same order on all workers.
      size: records per block; the last block may be smaller.
      leases: this worker's leases.
      shuffle: the size of the shuffle buffer for a block, in records; None: records keep their
        order.
    """
    self.size = size
    self._leases = leases
    self.records: Optional[int] = None
    self._cardinality = tf.data.experimental.cardinality(dataset)
    self._counted = dataset.reduce(
      tf.constant(0, tf.int64), lambda count, *unused_record: count + 1)

    def block(range_):
      records = dataset.skip(range_ % EPOCH * size).take(size)
      return records if shuffle is None else records.shuffle(min(shuffle, size))

    self.dataset = leases.dataset().flat_map(block)
    self._graph = tf.get_default_graph()
    self._built = len(self._graph.get_operations())

  def count(self, session: tf.Session) -> int:
    """Returns the number of blocks, and sets `records`; EndlessDatasetError for endless data."""
    if self.records is None:
      records = int(session.run(self._cardinality))
      if records == _ENDLESS:
        raise EndlessDatasetError(
          "shard.dataset got a dataset without an end, which cannot be divided into ranges. Call "
          "shard.dataset before repeat(); it repeats the dataset for --epochs.")
      if records < 0:  # unknown
        began = time.monotonic()
        records = int(session.run(self._counted))
        _log.info("counted the %d records of the data in %.1f s, for --shard=dynamic", records,
                  time.monotonic() - began)
      self.records = records
    return -(-self.records // self.size)

  def order_is_kept(self) -> bool:
    """Returns whether all datasets built after this one keep the order and number of records.

    A function that maps whole batches may change their size.
    """
    is_batched = False
    for op in self._graph.get_operations()[self._built:]:
      kind = without_version(op.type)
      is_map = "Map" in kind
      if op.type.startswith("RandomShuffle") or "Dataset" in kind and (
          kind not in KEEPING or is_map and (is_batched or _is_sloppy(op))):
        return False
      is_batched |= "Batch" in kind and "Dataset" in kind
    return True

  def trained(self, examples: int) -> None:
    """Counts examples that were trained on, in the order of the records, for their blocks."""
    for range_ in self._leases.held():
      if not examples:
        return
      size = min(self.size, self.records - range_ % EPOCH * self.size)
      left = size - self._leases.trained_of(range_)
      part = min(examples, left)
      self._leases.note_trained(range_, part, is_done=part == left)
      examples -= part


def _is_sloppy(op):
  attributes = op.node_def.attr
  return attributes["sloppy"].b or attributes["deterministic"].s == b"false"


class LeasedData(NamedTuple):
  """The data of a shard that workers lease."""

  leases: WorkerLeases  # of this worker
  digest: str  # differs for different ranges
  count: Optional[int]  # the number of ranges; None: it is known after the blocks were counted
  blocks: Optional[Blocks]  # None if the ranges are files


class RangeReport(NamedTuple):
  """Tensors by which a batch reports the ranges of its records."""

  trained: tf.Tensor  # int64 [n]: the range of each record of the batch
  ended: tf.Tensor  # int64 [m]: ranges that were read to their end
  sizes: tf.Tensor  # int64 [m]: the number of records in each of these ranges


def lease_files(owner: int, paths: List[str], shuffle: bool = False) -> LeasedData:
  """Leases files to worker `owner`; `shuffle` gives each epoch a different order.

  `paths` are all files, sorted; their directories may differ between workers.
  """
  names = "\0".join(os.path.basename(path) for path in paths)
  digest = hashlib.sha256(names.encode("utf-8")).hexdigest()[:16]
  return LeasedData(WorkerLeases(owner, _SEED if shuffle else None), digest, len(paths), None)


def lease_blocks(owner: int, dataset: tf.data.Dataset, size: int,
                 shuffle: Optional[int] = None) -> LeasedData:
  """Leases blocks of records; the arguments are those of `Blocks` and `WorkerLeases`."""
  leases = WorkerLeases(owner, _SEED if shuffle else None)
  return LeasedData(leases, "blocks of %d" % size, None, Blocks(dataset, size, leases, shuffle))


_WHY_AGAIN = ("under --shard=dynamic the input starts again for each epoch, and when ranges of a "
              "lost worker are handed out again. ")


def restart_problem(graph: tf.Graph, why: str = _WHY_AGAIN,
                    needs_iterator: bool = False) -> Optional[str]:
  """Returns why the input of a graph cannot begin another pass, and what to do; None if it can.

  Args:
    graph: the graph, with its input.
    why: the sentence before, which says why the input has to begin again.
    needs_iterator: whether the input needs an iterator that initialises without a feed.
  """
  if any(op.type == "OneShotIterator" for op in graph.get_operations()):
    return why + ("Replace make_one_shot_iterator by tf.data.make_initializable_iterator, or "
                   "return the dataset itself from input_fn.")
  if graph.get_collection(tf.GraphKeys.QUEUE_RUNNERS):
    return why + ("A queue that its queue runner has closed cannot start again: make batches with "
                   "tf.data (dataset.batch, or the datasets of tf1ps.pipeline).")
  made = {op.inputs[1].op for op in graph.get_operations() if op.type == "MakeIterator"}
  if needs_iterator and not 0 < len(made) == len(iterator_initializers(graph)):
    return why + ("That needs iterators that are initialised without a feed: return a dataset from "
                  "input_fn, or use tf.data.make_initializable_iterator.")
  return None
