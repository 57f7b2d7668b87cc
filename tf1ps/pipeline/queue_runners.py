"""Queue runners whose failures reach the consumer, and whose threads end.

`adopt` puts runners of ours in the place of TensorFlow's in a graph, so that whoever starts those
of the graph starts ours. Their threads live as runner_threads.py tells; what ends one reaches the
consumer as runner_failures.py tells, with the place of the record where record_copies.py can tell
it; what is bad is skipped or fails as bad_records.py says.
"""

from __future__ import annotations

import threading
from typing import List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.pipeline import record_copies, runner_failures, runner_threads


class Runner(tf.train.QueueRunner):
  """A queue runner made of TensorFlow's, with the same queue and operations.

  Attributes:
    copies: for each of the enqueue operations its `record_copies.Copy`, or None.
    was_started: whether threads were made for any session.
  """

  def __init__(self, stock: tf.train.QueueRunner):
    """Creates the runner.

    Args:
      stock: the runner to replace.
    """
    super().__init__(stock.queue, stock.enqueue_ops, stock.close_op, stock.cancel_op,
                     stock.queue_closed_exception_types)
    self.copies: List[Optional[record_copies.Copy]] = [None] * len(stock.enqueue_ops)
    self.was_started = False
    self._is_tracked = False
    self._groups = []

  def track(self) -> None:
    """Makes the copies, unless they are there or the graph is finalized."""
    graph = self.close_op.graph
    if not self._is_tracked and not graph.finalized:
      self._is_tracked = True
      with graph.as_default():
        self.copies = [record_copies.copy(op, number)
                       for number, op in enumerate(self.enqueue_ops)]

  def create_threads(self, sess, coord=None, daemon=False, start=False):
    """Like TensorFlow's, and has the session's runs raise what ended a runner.

    Args:
      sess: the session.
      coord: a `tf.train.Coordinator`, or None.
      daemon: whether the threads end with the process.
      start: whether to start them.

    Returns:
      The threads; [] where those of an earlier call for this session still run.
    """
    self._groups = [group for group in self._groups if group.is_running]
    if any(group.session is sess for group in self._groups):
      return []
    self.was_started = True
    self.track()
    failures = runner_failures.connect(sess, coord)
    group = runner_threads.Group(self, sess, coord, failures)
    self._groups.append(group)
    threads = group.make_threads(self.enqueue_ops, self.copies, daemon)
    if coord is not None:
      stopper = group.make_stopper(coord, daemon)
      threads.append(stopper)
      if hasattr(coord, "add_failures"):
        for thread in group.threads:
          coord.register_thread(thread)
      # TensorFlow's own waits for two minutes for a thread that does not end.
      coord.register_thread(stopper)
    if start:
      for thread in threads:
        thread.start()
    return threads


def adopt_queue_runners(
  graph: Optional[tf.Graph] = None, collection: str = tf.GraphKeys.QUEUE_RUNNERS, track: bool = True
) -> List[tf.train.QueueRunner]:
  """Puts runners of ours in the place of TensorFlow's in a graph.

  Args:
    graph: the graph, by default the default one.
    collection: where the runners are.
    track: whether to make the copies that remember records; not in a finalized graph.

  Returns:
    The runners; one of a class of the user's own stays as it is.
  """
  graph = graph or tf.get_default_graph()
  runners = graph.get_collection_ref(collection)
  runners[:] = [Runner(one) if type(one) is tf.train.QueueRunner else one for one in runners]
  if track:
    for one in runners:
      if isinstance(one, Runner):
        one.track()
  return list(runners)


def start_queue_runners(sess=None, coord=None, daemon=True, start=True,
                        collection=tf.GraphKeys.QUEUE_RUNNERS) -> List[threading.Thread]:
  """Like `tf.train.start_queue_runners`, with runners of ours.

  An error in a runner reaches whoever runs the session, in the place of the OutOfRangeError that
  the queue's end would be: `sess.run` and `sess.make_callable` are replaced on this session.

  Args:
    sess: the session; by default the default one.
    coord: a Coordinator, or None.
    daemon: whether the threads end with the process.
    start: whether to start them.
    collection: the graph collection of the runners.

  Returns:
    The threads.

  Raises:
    ValueError: there is no session.
    TypeError: `sess` is none.
    RuntimeError: with eager execution.
  """
  if not tf.executing_eagerly():
    adopt_queue_runners(collection=collection, track=False)
  return tf.train.start_queue_runners(sess, coord, daemon, start, collection)
