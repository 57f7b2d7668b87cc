"""One worker's claims on ranges of the data: from the table of all workers into a dataset.

`Claims` stands between `ranges.Ranges`, which a server keeps for all workers, and the input
pipeline of one:

1. `dataset` is the ranges that this worker claims, one when the pipeline asks for the next. A
   thread of ours makes the claim, as the pipeline's own must not wait for a session.
2. When there is nothing to claim, the dataset ends: what sits in shuffle buffers and unfinished
   batches comes out. That is a pass; another one begins with the dataset's next iterator.
3. What the worker has trained on is noted (`note_trained`), and a range is done when all of it
   was; or when the pass has drained (`drained`), which is all that can be said where the program's
   own pipeline changes the order.
4. About once a second the thread tells the table what is done, and how far the rest is.
"""

from __future__ import annotations

import collections
import inspect
import logging
import threading
from typing import Callable, Dict, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.compat import TIMING, Error
from tf1ps.pipeline import ranges as ranges_lib
from tf1ps.state import ControlError

_log = logging.getLogger("tf1ps")
_NOTHING_YET, _END = -1, -2
# What tf.data.Dataset.from_generator is told; TensorFlow 2 warns of what 1.15 knows.
_INT64 = ({"output_signature": tf.TensorSpec([], tf.int64)}
          if "output_signature" in inspect.signature(tf.data.Dataset.from_generator).parameters
          else {"output_types": tf.int64, "output_shapes": []})

# Called with a function of the `ranges.Ranges`; returns what that returned.
Change = Callable[[Callable[[ranges_lib.Ranges], object]], object]


class StaleSessionError(Error, RuntimeError):
  """The table is that of a later initialisation than the session's."""


class Claims:
  """One worker's claims.

  Attributes:
    owner: the worker's index.
    by_epoch: whether a pass ends with its epoch, so that what was read is known to be done.
    was_asked: whether the pipeline has asked for a range since the pass began.
  """

  def __init__(self, owner: int, seed: Optional[int] = None):
    """Creates them.

    Args:
      owner: the worker's index.
      seed: of the order in which ranges are handed out in each epoch; None: as they are numbered.
    """
    self.owner = owner
    self.by_epoch = False
    self._seed = seed
    self._condition = threading.Condition()
    self._telling = threading.Lock()
    self._pass = 0  # its number; a generator of an earlier one ends
    self._begin()
    self._change: Optional[Change] = None

  def _begin(self):
    """A pass begins: nothing is held, nothing wanted."""
    self._pass += 1
    self._is_wanted = self._has_ended = self.was_asked = False
    self._epoch: Optional[int] = None
    self._new = collections.deque()  # claimed, and not yet taken by the pipeline
    self._held: Dict[int, int] = collections.OrderedDict()  # by range: its claim; in reading order
    self._claims: Dict[int, int] = {}  # likewise, with those that were given back
    self._trained: Dict[int, int] = {}  # examples, by range
    self._done: List[int] = []  # claims, to be told

  def dataset(self) -> tf.data.Dataset:
    """The ranges of a pass: int64 scalars, the epoch times `ranges.EPOCH` plus the index."""
    def generate():
      number = self._pass
      found = self._next(number)
      while found != _END:
        yield found
        found = self._next(number)

    numbers = tf.data.Dataset.from_generator(generate, **_INT64)
    return numbers.filter(lambda found: found >= 0)

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
    """Begins the first pass of a session, before its iterators are initialised.

    Args:
      change: changes the table; raises control.ControlError where it does not answer, and
        StaleSessionError when this session is no longer to take part.
    """
    with self._condition:
      self._change = change
      self._begin()
    self._tell()  # what an earlier session or process held comes back
    threading.Thread(target=self._work, args=(change,), daemon=True, name="tf1ps: claims").start()

  def begin_pass(self) -> bool:
    """Begins another pass, when the last one has drained; False if nothing is to be claimed."""
    if not self._change(lambda ranges: ranges.has_more):
      return False
    with self._condition:
      self._begin()
    return True

  def end(self) -> None:
    """Ends the claiming and the thread; nothing is told any more."""
    with self._condition:
      self._change, self._has_ended = None, True
      self._condition.notify_all()

  def give_back(self) -> None:
    """Tells what is done and gives the rest back; nothing more is claimed in this session."""
    with self._telling:
      with self._condition:
        self._new.clear()
        self._held.clear()
        self._has_ended, self._is_wanted = True, False
      self._exchange()

  def drained(self) -> bool:
    """Notes that all that the pass has read was trained on, and tells the table.

    Returns False if the pass was not at its end: the pipeline has ended by itself, so what it has
    left out is not known. Then all ranges are given back.
    """
    with self._condition:
      has_ended = self._has_ended and not self._new
      if has_ended:
        for found in list(self._held):
          self._finish(found)
    if has_ended:
      self._tell()
    else:
      self.give_back()
    return has_ended

  # What was trained on.

  def in_order(self) -> List[int]:
    """The ranges that are held, in the order in which the pipeline reads them."""
    with self._condition:
      return list(self._held)

  def trained_of(self, found: int) -> int:
    """Examples of a range that were trained on so far."""
    return self._trained.get(found, 0)

  def note_trained(self, found: int, examples: int, is_done: bool) -> None:
    """Notes examples of a range that were trained on, and whether that is all of it."""
    with self._condition:
      if found in self._held:
        self._trained[found] = self._trained.get(found, 0) + examples
        if is_done:
          self._finish(found)

  def _finish(self, found):
    self._done.append(self._held.pop(found))
    self._trained.pop(found, None)
    del self._claims[found]

  # The table.

  def _work(self, change):
    while True:
      with self._condition:
        if self._change is change and not self._is_wanted:
          self._condition.wait(TIMING.range_report_interval)
        if self._change is not change:
          return
      try:
        self._tell()
      except StaleSessionError:
        return  # the session is about to be ended
      except ControlError as error:
        _log.info("no answer about the ranges of the data: %s", error)
        threading.Event().wait(TIMING.local_poll_interval)

  def _tell(self):
    with self._telling:  # what one thread claims, another must not take for a leftover
      self._exchange()

  def _exchange(self):
    """Tells what was done, and claims a range where one is wanted."""
    with self._condition:
      number, change = self._pass, self._change
      done, held = list(self._done), list(self._held.values())
      trained = {self._claims[found]: count for found, count in self._trained.items()}
      is_wanted, epoch = self._is_wanted, self._epoch
    if change is None:
      return

    def transact(ranges):
      ranges.done(self.owner, done)
      ranges.note_trained(self.owner, trained)
      # What is in the table and not held was claimed without that the answer arrived, or before.
      ranges.give_back(self.owner, held)
      claim = ranges.claim(self.owner, epoch if self.by_epoch else None) if is_wanted else None
      return claim, ranges.value["count"]

    claim, count = change(transact)
    with self._condition:
      if number != self._pass:
        return
      self._done = self._done[len(done):]
      if is_wanted:
        self._take(claim, count)

  def _take(self, claim, count):
    self._is_wanted = False
    if claim is None:
      self._has_ended = True
    else:
      found = claim if self._seed is None else ranges_lib.shuffled(claim, count, self._seed)
      self._epoch = claim // ranges_lib.EPOCH
      self._held[found] = self._claims[found] = claim
      self._new.append(found)
    self._condition.notify_all()
