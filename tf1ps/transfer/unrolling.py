"""Several steps of training in one run: the step is there several times, one after the other.

A run of a small model takes as long as its messages. With k copies of the finished step in the
graph the client asks once for k steps, each with a batch of its own, on what the one before it left
behind. In this order, for each copy after the first one:

1. On each task, what touches a variable or another handle there waits for all that the step before
   does on that task, by a no-op of that task: no message travels for the order. The task of the
   global step has the step's increment among it, which waits for the updates everywhere.
2. One value a task arrives on the worker. The step before is done then, and the worker notes it:
   how many steps of this run, and how many examples.
3. The batch is drawn. Where the data end in the middle of a run, what was noted is what was trained
   on: all updates before are made, and none is begun. (What waits for no gradient may be made, as
   in a step alone: stock Adam's decay of the slots of a sparse gradient.)

`Unrolled.run` runs the steps, and tells an end of the data in the middle of them (`done` of the
error).
"""

from __future__ import annotations

import itertools
import uuid
from typing import Any, Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tf1ps.transfer import placed, prefetch, step_chain


class Done(NamedTuple):
  """What was done in a run that has ended in the middle."""

  steps: int
  examples: int  # of those steps; 0 where no batch size was given
  late: int  # examples of gradients that were not taken for an update


class Unrolled:
  """Steps of training, one after the other in one run.

  Attributes:
    steps: how many.
    train_ops: of each step.
    losses: [steps], or None.
    batch_sizes: int64 [steps], or None.
    fetches: whatever else was given, a structure for each step.
  """

  def __init__(self, train_op: tf.Operation, steps: int, loss: Optional[tf.Tensor] = None,
               batch_size: Optional[tf.Tensor] = None, taken: Optional[tf.Tensor] = None,
               fetches: Any = None, worker: Optional[str] = None):
    """Builds the copies, in the graph of the step; the step itself is the first of them.

    Args:
      train_op: the finished training step, the global step's increment included.
      steps: how many steps a run makes, 1 or more.
      loss: the loss of its batch, a scalar.
      batch_size: the size of its batch, an int scalar tensor, as `tf.shape(x)[0]`, or a number;
        None: examples are not counted.
      taken: a bool scalar: whether the update was made; None: always.
      fetches: more tensors and operations of the step, in a structure of lists and dicts.
      worker: the device of the worker, such as "/job:worker/task:0"; None: that of the loss.

    Raises:
      ValueError: less than one step, neither a loss nor a worker, or a step that prefetches.
    """
    if isinstance(steps, bool) or int(steps) != steps or steps < 1:
      raise ValueError("steps must be a number, 1 or more, got %r" % (steps,))
    if worker is None and loss is None:
      raise ValueError("give the loss or the worker's device: batches are drawn on the worker")
    if steps > 1 and prefetch.is_in(placed.needed_ops([train_op])):
      raise ValueError("this step computes on values that were fetched before it, by "
                       "prefetch.Prefetch: all steps of a run would compute on those of before the "
                       "run. Use one of the two")
    self.steps = int(steps)
    self._worker = loss.device if worker is None else worker
    self._run_numbers = itertools.count(1)
    with train_op.graph.as_default(), tf.device(None), tf.control_dependencies(None), \
        tf.name_scope("unrolled"):
      self._build_notes()
      if batch_size is not None:
        with tf.device(self._worker):
          batch_size = tf.convert_to_tensor(batch_size)
      one = dict(train_op=train_op, loss=loss, size=batch_size, taken=taken, fetches=fetches)
      each = step_chain.Chain(one, self._worker, self._note).build(self.steps)
      self.train_ops: List[tf.Operation] = [step["train_op"] for step in each]
      self.fetches = [step["fetches"] for step in each]
      with tf.device(self._worker):
        self.losses = None if loss is None else tf.stack([step["loss"] for step in each])
        self.batch_sizes = None if batch_size is None else tf.stack(
          [tf.cast(step["size"], tf.int64) for step in each])
        self.taken = None if taken is None else tf.stack([step["taken"] for step in each])

  # What is noted on the worker.

  def feed(self, slot: int = 0) -> Dict[tf.Tensor, Any]:
    """What a run has to be fed with, so that `done` knows of it; a new one for each run.

    Args:
      slot: a number of one's own for each of the threads that make runs at the same time.
    """
    return {self._slot: slot, self._number: next(self._run_numbers)}

  def done(self, session: tf.Session, feed: Dict[tf.Tensor, Any]) -> Done:
    """What a run has done that the end of the data has ended.

    Args:
      session: that of the run.
      feed: what the run was fed with.
    """
    number, steps, examples, late = session.run(self._read, {self._slot: feed[self._slot]})
    if number != feed[self._number]:
      return Done(0, 0, 0)
    return Done(int(steps), int(examples), int(late))

  def run(self, session: tf.Session, fetches: Any = None) -> Any:
    """Makes the steps in one run; for a loop of one's own.

    Args:
      session: a session.
      fetches: what to fetch, such as `losses`; None: nothing.

    Returns:
      What was fetched.

    Raises:
      tf.errors.OutOfRangeError: the data have ended; its attribute `done` is a `Done`: what was
        trained on before, in this run.
    """
    feed = self.feed()
    try:
      return session.run([self.train_ops, fetches if fetches is not None else []], feed)[1]
    except tf.errors.OutOfRangeError as error:
      error.done = self.done(session, feed)
      raise

  def _build_notes(self):
    with tf.device(self._worker):
      self._slot = tf.placeholder_with_default(tf.constant(0, tf.int64), [], "slot")
      self._number = tf.placeholder_with_default(tf.constant(0, tf.int64), [], "run")
      # A table needs no initialisation. By a name that nobody else on this worker has.
      with tf.device(placed.cpu_of(placed.task_of_device(self._worker))):
        self._notes = tf.raw_ops.MutableHashTableOfTensorsV2(
          key_dtype=tf.int64, value_dtype=tf.int64, value_shape=[4],
          shared_name="tf1ps.steps_of_run:" + uuid.uuid4().hex)
      self._read = tf.raw_ops.LookupTableFindV2(
        table_handle=self._notes, keys=self._slot, default_value=tf.zeros([4], tf.int64))

  def _note(self, before: List[dict]) -> tf.Operation:
    """Notes that these steps are done."""
    zero = tf.zeros([], tf.int64)
    examples = late = zero
    for step in before:
      if step["size"] is None:
        continue
      size = tf.cast(step["size"], tf.int64)
      taken = tf.constant(True) if step["taken"] is None else step["taken"]
      examples += tf.where_v2(taken, size, zero)
      late += tf.where_v2(taken, zero, size)
    return tf.raw_ops.LookupTableInsertV2(
      table_handle=self._notes, keys=self._slot,
      values=tf.stack([self._number, tf.constant(len(before), tf.int64), examples, late]))
