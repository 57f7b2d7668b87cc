"""Done queues: workers report that they are done, and other tasks wait for the reports.

Each place, which is a task such as a ps, has a queue per worker.

1. A worker that is done enqueues an element in its queue at each place, unless the element is
   already there (`report`). Only `clear` removes it.
2. A task that waits reads the sizes of the queues at its place and dequeues nothing. So any number
   of tasks may wait, and a restarted task finds all reports again.

The queues live in the control container, where no reset clears them. Their names contain the job's
container and the run. They are TensorFlow's own queues, because no operation on them ever waits.
"""

from __future__ import annotations

import time
from typing import List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import job_container, latest_record
from tf1ps.compat import TIMING, Error
from tf1ps.state import containers, queue_call


class DoneStatus(NamedTuple):
  """The workers that are done. As text: "2 of 2 workers done"."""

  done: List[int]  # the indices of the workers that have reported
  missing: List[int]  # the indices of the other workers
  names: List[str]  # the names of the missing workers

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
  """The queues in which workers report that they are done.

  A report stays as long as the server of its place lives. Give two runs on persistent servers
  different values of `run`, or call `clear` in one task before the workers begin.

  Attributes:
    poll_secs: seconds between two requests of a waiting task.
  """

  poll_secs = TIMING.fast_poll_interval

  def __init__(self, num_workers: int, names: Optional[Sequence[str]] = None, *,
               places: Optional[Sequence[str]] = None, container: Optional[str] = None,
               run: str = ""):
    """Builds the operations in the default graph; all tasks of the job build the same operations.

    Args:
      num_workers: the number of workers that report.
      names: the names of the workers; None: "/job:worker/task:0" and so on.
      places: the devices to report to, such as ["/job:ps/task:0"]. None: each ps of this process's
        `tf1ps.Server`, or the chief if there is no ps. [""]: TensorFlow chooses.
      container: the job's container, for the queues' names; None: the container of this process's
        server.
      run: distinguishes this run from other runs of the job.

    Raises:
      ValueError: there are no workers, too few names, or no places in a process without a
        `tf1ps.Server`.
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
    self._reports: List[List[tf.Operation]] = [[] for _ in range(num_workers)]
    self._sizes, self._clears = [], []
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

  def report(self, session: tf.Session, index: int) -> None:
    """Reports at every place that worker `index` is done. A second report changes nothing.

    The session must be a session of this graph that reaches all places; its hooks do not run.
    """
    if not 0 <= index < len(self.names):
      raise ValueError("index must be from 0 to %d, got %r" % (len(self.names) - 1, index))
    queue_call.run_once(session, self._reports[index])

  def status(self, session: tf.Session, place: Optional[int] = None) -> DoneStatus:
    """Returns the workers that are done now; see `wait` for the arguments."""
    return self._status(session, place)

  def _status(self, session, place, deadline=None):
    place = self._own_place() if place is None else place
    sizes = queue_call.run_once(
      session, self._sizes[place], None, deadline,
      lambda: ("wait() for reports at %s" % (self.places[place] or "the session's default device"),
               "who is done is not known"))
    missing = [i for i, size in enumerate(sizes) if not size]
    return DoneStatus([i for i, size in enumerate(sizes) if size], missing,
                      [self.names[i] for i in missing])

  def wait(self, session: tf.Session, timeout: float = 300.0,
           place: Optional[int] = None, linger: Optional[float] = None) -> DoneStatus:
    """Waits until all workers are done; str() of the result is "2 of 2 workers done".

    Args:
      session: a session of the graph that reaches the place; its hooks do not run.
      timeout: seconds.
      place: index of the place to read; None: this task if it is a place, else the first place.
      linger: seconds to wait after the last report. At that moment the session of the last worker
        is still open, and TensorFlow's close of a session, which has no limit, needs the session's
        servers. None: 1.5 on a ps, which usually leaves when this method returns; elsewhere 0.

    Raises:
      DoneTimeout: workers are missing; the error names them.
      QueueUnanswered: the place did not answer.
    """
    if timeout is None or not timeout >= 0:
      raise ValueError("timeout must be a number of seconds, 0 or more, got %r" % (timeout,))
    if linger is None:
      linger = TIMING.linger if _is_ps() else 0.0
    began = time.monotonic()
    until = began + timeout
    while True:
      status = self._status(session, place, until)
      if not status.missing:
        time.sleep(linger)
        return status
      left = until - time.monotonic()
      if left <= 0:
        raise DoneTimeout("after %.1f s %s" % (time.monotonic() - began, status), status)
      time.sleep(min(self.poll_secs, left))

  def clear(self, session: tf.Session) -> None:
    """Removes the reports of an older run at every place."""
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
      "this process has no tf1ps.Server that knows the ps: give places=, the devices to report to")
  return [task.name for task in record.cluster.ps or [record.cluster.chief]]


def _put_once(queue, size) -> tf.Tensor:
  def put():
    with tf.control_dependencies([queue.enqueue(1)]):
      return tf.constant(1)

  return tf.cond(tf.equal(size, 0), put, lambda: tf.constant(0))
