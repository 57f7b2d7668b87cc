"""The turn book on a server: read and written under a lock, with a queue of tokens a replica.

What happens to the book is a matter of turns.py; here is how it is kept, on one task and in the
job's container:

  the book      a small variable, which is an empty book until somebody writes it
  the lock      that of a guard (state/guard.py), which also notices a reset of the container
  the queues    one for each replica, which waits there for its token: [turn, global step, ended,
                the bits of the mean loss as float64]
"""

from __future__ import annotations

import contextlib
from typing import Callable, List, Tuple

import tensorflow.compat.v1 as tf

from tf1ps.replication import turn_book
from tf1ps.state import QUEUE_KIND, Guard, Guarded, shared_placement

TOKEN = [4]  # the shape of a token
TORN = "tf1ps torn: "
ENDED = "the_replicas_have_ended"  # in the text of the OutOfRangeError that ends training for all


class SharedBook(Guarded):
  """The book and the queues of one synchronous optimizer, as one replica's graph sees them.

  Attributes:
    announced: operations that tell resets of the queues; one of the first things to run.
  """

  def __init__(self, replicas: int, index: int, rules: dict, shared_name: str, device: str):
    """Builds them in the default graph.

    Args:
      replicas: how many there are.
      index: of this replica.
      rules: what all replicas must agree on, JSON.
      shared_name: under which they find the book.
      device: the task that keeps it; "" without a cluster.
    """
    self._replicas, self._index = replicas, index
    name = "tf1ps.turns:%s" % shared_name
    self._shape = list(turn_book.empty(replicas).shape)
    names = ["%s/%d" % (name, i) for i in range(replicas)]
    with tf.control_dependencies(None):
      with shared_placement(name, device):
        self._book = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=self._shape, shared_name=name)
        self._queues = [tf.raw_ops.FIFOQueueV2(
          component_types=[tf.int64], shapes=[TOKEN], shared_name=one) for one in names]
      self._guard = Guard(self._book.op, "turns", name, rules)
      # So that a reset closes them before it takes them away under who waits.
      self.announced = [
        Guard(queue.op, QUEUE_KIND, one, dict(kind="FIFOQueue")).announce()
        for queue, one in zip(self._queues, names)]

  def read(self) -> turn_book.Book:
    """The book; takes no lock."""
    with tf.get_default_graph().colocate_with(self._book.op):
      table = tf.cond(
        tf.raw_ops.VarIsInitializedOp(resource=self._book),
        lambda: tf.raw_ops.ReadVariableOp(resource=self._book, dtype=tf.int64),
        lambda: tf.constant(turn_book.empty(self._replicas)))
      table.set_shape(self._shape)
      return turn_book.unpack(table)

  def write(self, book: turn_book.Book) -> tf.Operation:
    """Writes the book; only in a step."""
    return tf.raw_ops.AssignVariableOp(resource=self._book, value=turn_book.pack(book))

  def step(self, function, inputs=()) -> list:
    """An indivisible step on the book; the arguments are those of `Guard.step`."""
    return self._guard.step(function, inputs)

  def change(self, function: Callable[[turn_book.Book], turn_book.Book],
             may_be_torn: bool = False) -> tf.Operation:
    """An indivisible step that replaces the book by what a function makes of it."""
    def step():
      book = self.read()
      with tf.control_dependencies([] if may_be_torn else [check_whole(book)]):
        book = function(turn_book.Book(*[tf.identity(part) for part in book]))
      with tf.control_dependencies([self.write(book)]):
        return [tf.constant(True)]

    return self.step(step)[0].op

  def mark(self, column: tf.Tensor, value) -> tf.Tensor:
    """A column with another value for this replica."""
    mine = tf.equal(tf.range(self._replicas), self._index)
    return tf.where_v2(mine, tf.cast(value, tf.int64), column)

  @contextlib.contextmanager
  def elsewhere(self):
    """A context in a step, for operations that do not belong beside the book."""
    # In a cond of TensorFlow 2 the default graph is the branch, and slots are made outside of it.
    with self._book.graph.colocate_with(None, True), \
        tf.get_default_graph().colocate_with(None, True):
      yield

  def bring(self, value: tf.Tensor) -> tf.Tensor:
    """A value that was computed elsewhere, beside the book: an input of a step."""
    with tf.get_default_graph().colocate_with(self._book.op):
      return tf.identity(value)

  # Tokens.

  def put_tokens(self, to: tf.Tensor, token: list) -> List[tf.Operation]:
    """Puts a token into the queue of each replica with a 1."""
    token = tf.stack(token)[tf.newaxis]
    return [tf.raw_ops.QueueEnqueueManyV2(
      handle=queue, components=[token[:tf.cast(to[i], tf.int32)]])
      for i, queue in enumerate(self._queues)]

  def tokens(self) -> tf.Tensor:
    """How many tokens wait in this replica's queue, an int32 scalar."""
    return tf.raw_ops.QueueSizeV2(handle=self._queues[self._index])

  def drain(self) -> tf.Operation:
    """Takes what is left in this replica's queue.

    In a step, and while this replica waits for no token, it does not block.
    """
    handle = self._queues[self._index]
    return tf.raw_ops.QueueDequeueManyV2(
      handle=handle, n=self.tokens(), component_types=[tf.int64])[0].op

  def await_token(self, waits: tf.Tensor, instead: tf.Tensor) -> Tuple[tf.Tensor, tf.Tensor]:
    """Waits for this replica's token, if it has to.

    All of it is beside the book, and the result travels as one: a condition that is known elsewhere
    would go there and back.

    Args:
      waits: whether it has to, a bool scalar.
      instead: what it gets if not, like a token.

    Returns:
      The token, and `waits`, where the replica is.
    """
    def take():
      return tf.raw_ops.QueueDequeueV2(
        handle=self._queues[self._index], component_types=[tf.int64])[0]

    with tf.get_default_graph().colocate_with(self._book.op):
      token = tf.cond(waits, take, lambda: tf.identity(instead))
      token.set_shape(TOKEN)
      both = tf.concat([token, tf.cast(waits, tf.int64)[tf.newaxis]], 0)
    both = tf.identity(both)
    return both[:TOKEN[0]], tf.equal(both[TOKEN[0]], 1)


def check_whole(book: turn_book.Book) -> tf.Operation:
  """Fails with TORN where a run was cut off in the middle of an update."""
  return tf.raw_ops.Assert(condition=tf.equal(book.updating, 0), data=[tf.constant(
    "%san update was cut off in the middle: some variables have it and others have not, so the "
    "last checkpoint must be restored, or training started over" % TORN)])


def raise_end() -> tf.Tensor:
  """Raises the OutOfRangeError that tells a training loop that the data have ended."""
  with tf.control_dependencies(None):  # a copy of what raises it shares the queue, and its inputs
    handle = tf.raw_ops.FIFOQueueV2(
      component_types=[tf.int64], shapes=[TOKEN], name=ENDED)
  with tf.control_dependencies([tf.raw_ops.QueueCloseV2(
      handle=handle, cancel_pending_enqueues=True)]):
    return tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])[0]
