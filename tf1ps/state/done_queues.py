"""Done queues: who is done reports it, and whoever waits learns who is missing.

At each place, which is a task such as a ps, every worker has a queue of its own.

1. A worker that is done puts one element into its queue at each place, unless there is one.
2. Whoever waits looks at the sizes of the queues at its place, and takes nothing. So any number of
   tasks may wait, and one that was killed and comes back finds what it had seen.

The queues live in the control container, where no reset reaches them; their names hold the job's
container and the run. They are TensorFlow's own: nothing in them is ever waited for.
"""

from __future__ import annotations

import time
from typing import List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import job_container, latest_record
from tf1ps.compat import TIMING, Error
from tf1ps.state import containers, queue_call


class DoneStatus(NamedTuple):
  """Who is done. As text: "2 of 2 workers done"."""

  done: List[int]  # the indices of the workers that have reported
  missing: List[int]  # those of the others
  names: List[str]  # what those are called

  def __str__(self):
    total = len(self.done) + len(self.missing)
    return "%d of %d workers done%s" % (
      len(self.done), total, "; missing: %s" % ", ".join(self.names) if self.names else "")


class DoneTimeout(Error, RuntimeError):
  """Some workers have not reported within the limit.

  Attributes:
    status: the `DoneStatus`.
  """

  def __init__(self, reason: str, status: DoneStatus):
    super().__init__(reason)
    self.status = status


class DoneQueues:
  """Where workers report that they are done.

  Reports stay as long as the server lives that keeps them. On persistent servers `run` separates
  the reports of two runs. Without `run`, one task calls `clear` before the workers begin.

  Attributes:
    poll_secs: seconds between two looks of a waiting task.
  """

  poll_secs = TIMING.fast_poll_interval

  def __init__(self, num_workers: int, names: Optional[Sequence[str]] = None, *,
               places: Optional[Sequence[str]] = None, container: Optional[str] = None,
               run: str = ""):
    """Builds the operations in the default graph; all tasks of the job build the same.

    Args:
      num_workers: how many report.
      names: what they are called; None: "/job:worker/task:0" and so on.
      places: the devices to report to, such as ["/job:ps/task:0"]; None: each ps of this process's
        `tf1ps.Server`, the chief where it has none; [""]: where TensorFlow puts it.
      container: the job's container, for the queues' names; None: that of this process's server.
      run: what tells this run from others of the same job.

    Raises:
      ValueError: no workers, too few names, or no places where this process has no `tf1ps.Server`.
    """
    if isinstance(num_workers, bool) or num_workers < 1:
      raise ValueError("num_workers must be a number above 0, got %r" % (num_workers,))
    self.names = list(names or ["/job:worker/task:%d" % i for i in range(num_workers)])
    if len(self.names) != num_workers:
      raise ValueError("%d workers need as many names, got %r" % (num_workers, names))
    self.places = list(_places() if places is None else places)
    if not self.places:
      raise ValueError("places must name at least one device to report to")
    job = job_container() if container is None else container
    graph = tf.get_default_graph()
    self._sizes, self._reports, self._clears = [], [[] for _ in range(num_workers)], []
    with tf.control_dependencies(None), tf.name_scope("done_queues"):
      for place in self.places:
        sizes = []
        with tf.device(place), graph.container(containers.CONTROL):
          for i in range(num_workers):
            queue = tf.queue.FIFOQueue(
              -1, [tf.int32], [[]], shared_name="done:%s:%s:%d" % (job, run, i))
            size = queue.size()
            sizes.append(size)
            self._reports[i].append(_put_once(queue, size))
            self._clears.append(tf.raw_ops.QueueDequeueManyV2(
              handle=queue.queue_ref, n=size, component_types=[tf.int32])[0].op)
          self._sizes.append(tf.stack(sizes))

  def report(self, session, index: int) -> None:
    """Reports at every place that a worker is done; a second time it changes nothing.

    Args:
      session: a session of the graph, which reaches all places; no hooks are run.
      index: of the worker.
    """
    if not 0 <= index < len(self.names):
      raise ValueError("index must be from 0 to %d, got %r" % (len(self.names) - 1, index))
    queue_call.run_once(session, self._reports[index])

  def status(self, session, place: Optional[int] = None) -> DoneStatus:
    """Who is done by now; the arguments are those of `wait`."""
    sizes = queue_call.run_once(session, self._sizes[self._own_place() if place is None else place])
    missing = [i for i, size in enumerate(sizes) if not size]
    return DoneStatus([i for i, size in enumerate(sizes) if size], missing,
                      [self.names[i] for i in missing])

  def wait(self, session, timeout: float = 300.0, place: Optional[int] = None,
           linger: Optional[float] = None) -> DoneStatus:
    """Waits until all workers are done.

    Args:
      session: a session of the graph, which reaches the place; no hooks are run.
      timeout: seconds.
      place: index of the place to look at; None: this very task where it is one, else the first.
      linger: seconds to stay after the last report. The last worker's session is still open then,
        and its close, without a limit in TensorFlow, needs its servers. None: 1.5 on a ps, which
        most often leaves when this returns, elsewhere 0.

    Returns:
      The `DoneStatus`: str() of it is "2 of 2 workers done".

    Raises:
      DoneTimeout: naming who is missing.
    """
    if timeout is None or not timeout >= 0:
      raise ValueError("timeout must be a number of seconds, 0 or more, got %r" % (timeout,))
    if linger is None:
      linger = TIMING.linger if _is_ps() else 0.0
    began = time.monotonic()
    until = began + timeout
    while True:
      status = self.status(session, place)
      if not status.missing:
        time.sleep(linger)
        return status
      left = until - time.monotonic()
      if left <= 0:
        raise DoneTimeout("after %.1f s %s" % (time.monotonic() - began, status), status)
      time.sleep(min(self.poll_secs, left))

  def clear(self, session) -> None:
    """Takes away at every place what an older run has reported."""
    queue_call.run_once(session, self._clears)

  def _own_place(self) -> int:
    record = latest_record()
    own = record.cluster.task.name if record is not None else None
    return self.places.index(own) if own in self.places else 0


def _is_ps() -> bool:
  record = latest_record()
  return record is not None and record.cluster.task.job == "ps"


def _places() -> List[str]:
  record = latest_record()
  if record is None:
    raise ValueError(
      "places must name the devices to report to: this process has no tf1ps.Server to know them by")
  return [task.name for task in record.cluster.ps or [record.cluster.chief]]


def _put_once(queue, size) -> tf.Tensor:
  def put():
    with tf.control_dependencies([queue.enqueue(1)]):
      return tf.constant(1)

  return tf.cond(tf.equal(size, 0), put, lambda: tf.constant(0))
