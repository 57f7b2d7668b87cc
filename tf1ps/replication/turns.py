"""Turns: the last gradient in turns the page.

No chief's thread, and no tokens in advance. All replicas share a book (turn_book.py) on one task,
under the lock of a guard (state/guard.py). A replica whose gradient is there enters the lock and

1. is noted as come, if its gradient was computed for this turn; one for an earlier turn is counted
   as stale, and its replica goes on at once with the present turn;
2. if it is the last one that this turn waits for, it has the update made from the mean of those
   who came, turns the page, and puts a token into each of their queues;
3. leaves the lock, and waits for its token.

Nobody can be noted twice in a turn, so that an update is the mean of one gradient of each. No
process is needed for the others to go on but those who take part: who leaves says so (`leave`), and
whoever sees that another is lost says it for it (`drop`); either may turn the page.

A run that is cut off in the middle of an update leaves a mark in the book; the next one fails with
TORN, since some variables have the update and others have not.
"""

from __future__ import annotations

from typing import Callable, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.replication import page, shared_book, turn_book
from tf1ps.replication.choices import ON_UNEVEN, PAD, SHRINK, STOP_ALL
from tf1ps.replication.page import Rules

__all__ = [
  "REPLICAS_ENDED",
  "NOT_JOINED",
  "ON_UNEVEN",
  "PAD",
  "SHRINK",
  "STOP_ALL",
  "TEARS",
  "TORN",
  "WIPES",
  "Rules",
  "Turn",
  "Turns",
]
TORN, REPLICAS_ENDED = shared_book.TORN, shared_book.ENDED
NOT_JOINED = "tf1ps not joined: "
# Collections of a graph, for the chief's session: what it runs when the variables got new values,
# and bool scalars that say whether the values that it finds are torn.
WIPES, TEARS = "tf1ps_wipes", "tf1ps_tears"
_NO_UPDATE = -1  # in the place of a token's turn: nobody knows of an update with this gradient


class Turn(NamedTuple):
  """What a replica knows after a step."""

  turn: tf.Tensor  # int64 scalar: the next turn; -1 where nobody knows
  global_step: tf.Tensor  # int64 scalar: after the last update
  taken: tf.Tensor  # bool scalar: whether its gradient is in that update
  # Scalar, of the type of its loss: the mean over the gradients in that update; where its own is
  # not among them, its own loss. None: no loss was given.
  loss: Optional[tf.Tensor]


class Turns:
  """The turns of one synchronous optimizer, as one replica's graph sees them."""

  def __init__(self, rules: Rules, index: int, shared_name: str, device: str):
    """Builds book and queues in the default graph.

    Args:
      rules: the same in every replica.
      index: of this replica.
      shared_name: under which the replicas find the book.
      device: the task that keeps it; "" without a cluster.
    """
    self.rules, self.index = rules, index
    self._book = shared_book.SharedBook(
      rules.replicas, index, dict(rules._asdict()), shared_name, device)

  @property
  def container(self) -> str:
    """The container that the book lives in; "" is the default one."""
    return self._book.container

  # What replicas run. Each is an indivisible step.

  def join(self, make_rows: Callable[[], List[tf.Operation]], may_begin: tf.Tensor,
           is_chief: bool = False) -> tf.Operation:
    """This replica takes part from the present turn on; what it pushed before is forgotten.

    Args:
      make_rows: builds the operations that make the gradients' rows where they are not there.
      may_begin: an int64 scalar, 1 where nobody wipes the book for a new job. Then, where all have
        left, the first to join begins another job; and a chief takes back an end in any case, as
        not all of an earlier job's replicas may have lived to leave.
      is_chief: whether this replica is the chief.
    """
    def function(book):
      is_new = tf.reduce_min(book.gone) * may_begin
      ends = may_begin if is_chief else is_new
      gone = book.gone * (1 - is_new)
      with self._book.elsewhere():
        made = make_rows()
      with tf.control_dependencies(made + [self._book.drain()] + self._book.announced):
        return book._replace(
          active=self._book.mark(book.active, 1), gone=self._book.mark(gone, 0),
          padding=self._book.mark(book.padding * (1 - is_new), 0),
          came=self._book.mark(book.came * (1 - is_new), 0),
          known=self._book.mark(book.known, book.turn),
          ended=book.ended * (1 - ends), joins=book.joins + 1)
    return self._book.change(function)

  def wipe(self) -> tf.Operation:
    """Begins a new book; for the chief, whenever the variables got new values.

    All replicas have to join again.
    """
    def function(book):
      none = tf.zeros_like(book.active)
      zero = tf.zeros([], tf.int64)
      return turn_book.Book(
        *[none] * 8, turn=book.turn + 1, ended=zero, updating=zero, update_step=zero, joins=zero)
    return self._book.change(function, may_be_torn=True)

  def is_torn(self) -> tf.Tensor:
    """Whether an update was cut off in the middle, a bool scalar."""
    return self._book.step(lambda: [tf.equal(self._book.read().updating, 1)])[0]

  def come(self, update: Callable[[tf.Tensor], tf.Tensor], after: List[tf.Operation],
           loss: Optional[tf.Tensor] = None) -> Turn:
    """This replica's gradient is in its rows; waits for the update that it is in.

    Args:
      update: gets an int64 vector with a 1 for each replica that came; makes the update from their
        rows and returns the global step after it.
      after: what writes the rows.
      loss: this replica's, of the same batch; one that is no scalar counts with its mean.

    Returns:
      What the replica knows then.

    Raises:
      tf.errors.OutOfRangeError: when run, training has ended for all (on_uneven "stop_all").
      tf.errors.InvalidArgumentError: when run, NOT_JOINED, TORN, or "container ... was reset".
    """
    own = tf.zeros([], tf.float64) if loss is None else tf.reduce_mean(tf.cast(loss, tf.float64))
    bits = self._book.bring(tf.bitcast(own, tf.int64))

    def function():
      book = self._book.read()
      with tf.control_dependencies([
          shared_book.check_whole(book),
          self.check_joined(tf.equal(book.active[self.index], 1)),
          self._book.drain()]):
        goes_on = tf.equal(book.ended, 0)
        is_late = tf.logical_and(goes_on, book.known[self.index] < book.turn)
        has_come = tf.logical_and(goes_on, tf.logical_not(is_late))
      late = tf.cast(is_late, tf.int64)
      book = book._replace(
        came=self._book.mark(book.came, tf.cast(has_come, tf.int64)),
        stale=self._book.mark(book.stale, book.stale[self.index] + late),
        known=self._book.mark(book.known, tf.where_v2(
          is_late, book.turn, book.known[self.index])),
        loss=self._book.mark(book.loss, bits))
      after_it = page.turn(self._book, self.rules, book, update)
      with tf.control_dependencies([self._book.write(after_it)]):
        return [tf.identity(has_come),
                tf.stack([book.turn, book.update_step, book.ended, 0])]

    token, waited = self._book.await_token(*self._book.step(function, [*after, bits]))
    token = tf.cond(tf.equal(token[2], 1), shared_book.raise_end, lambda: tf.identity(token))
    token.set_shape(shared_book.TOKEN)
    taken = tf.logical_and(waited, tf.not_equal(token[0], _NO_UPDATE))
    if loss is not None:
      mean = tf.bitcast(token[3], tf.float64)
      loss = tf.cast(tf.where_v2(taken, mean, own), loss.dtype)
    return Turn(token[0], token[1], taken, loss)

  def check_joined(self, condition: tf.Tensor) -> tf.Operation:
    """Fails with NOT_JOINED where a condition does not hold."""
    return tf.raw_ops.Assert(condition=condition, data=[tf.constant(
      "%sreplica %d takes no part: run the hook of make_session_run_hook, or local_step_init_op, "
      "in this session first" % (NOT_JOINED, self.index))])

  def is_late(self) -> tf.Tensor:
    """Whether this replica computes for a turn that is over, a bool scalar; takes no lock."""
    book = self._book.read()
    return book.known[self.index] < book.turn

  def leave(self, update: Callable[[tf.Tensor], tf.Tensor]) -> tf.Operation:
    """This replica has no more data; what that means for the others is a matter of the rules.

    Args:
      update: as for `come`.
    """
    if self.rules.on_uneven == STOP_ALL:
      return self.end()
    if self.rules.on_uneven == PAD:  # it stays among those who are waited for
      return self._book.change(lambda book: page.turn(self._book, self.rules, book._replace(
        active=self._book.mark(book.active, 0), gone=self._book.mark(book.gone, 1),
        came=self._book.mark(book.came, 0), padding=self._book.mark(book.padding, 1)), update))
    return self.drop(tf.constant(self.index, tf.int64), update)

  def drop(self, replica: tf.Tensor, update: Callable[[tf.Tensor], tf.Tensor]) -> tf.Operation:
    """A replica takes no part any more, and the others go on without it.

    Args:
      replica: its index, an int64 scalar.
      update: as for `come`.

    Raises:
      tf.errors.InvalidArgumentError: when run, TORN.
    """
    keeps = tf.cast(tf.not_equal(tf.range(self.rules.replicas, dtype=tf.int64), replica), tf.int64)
    return self._book.change(lambda book: page.turn(self._book, self.rules, book._replace(
      active=book.active * keeps, gone=tf.maximum(book.gone, 1 - keeps),
      came=book.came * keeps, padding=book.padding * keeps), update))

  def end(self) -> tf.Operation:
    """Training ends for all: who waits, and who comes later, gets an OutOfRangeError."""
    def function(book):
      one = tf.ones([], tf.int64)
      tokens = self._book.put_tokens(book.came, [book.turn, book.update_step, one, 0])
      with tf.control_dependencies(tokens):
        return book._replace(
          ended=one, came=tf.zeros_like(book.came), stale=book.stale + book.came,
          active=self._book.mark(book.active, 0), gone=self._book.mark(book.gone, 1))
    return self._book.change(function)

  def nudge(self) -> tf.Operation:
    """Puts a token for this replica where it has not come, and has none.

    It frees one that waits though its own token was lost, or its gradient forgotten; otherwise the
    token is found and taken away when the replica comes. It takes nothing itself: the replica may
    be about to do so.
    """
    def function(book):
      lacks = tf.cast(tf.equal(self._book.tokens(), 0), tf.int64)
      waits = self._book.mark(tf.zeros_like(book.came), (1 - book.came[self.index]) * lacks)
      nothing = tf.constant(_NO_UPDATE, tf.int64)
      with tf.control_dependencies(
          self._book.put_tokens(waits, [nothing, book.update_step, book.ended, 0])):
        return turn_book.Book(*[tf.identity(part) for part in book])
    return self._book.change(function)

  def look(self) -> tf.Tensor:
    """The book's table, for `turn_book.view`; takes no lock."""
    return turn_book.pack(self._book.read())
