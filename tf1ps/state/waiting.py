"""`get` and `put`: waiting for a queue in Python.

No operation on the server ever waits, so none is ever cancelled with elements in its hands. The
caller asks, and where the answer is no it asks again every `poll_secs`, until its time is over. An
element that arrives is in a waiting consumer's hands after `poll_secs` and one run, at most. There
is no order among waiting callers, and whoever asks for many may wait while others take few.
"""

from __future__ import annotations

from typing import Optional

from tf1ps.compat import TIMING
from tf1ps.state import queue_call, queue_elements, queue_errors


class WaitingQueue:
  """The part of a queue that waits. `queues.py` brings `spec`, `_guard`, `_steps`, `_single`.

  Attributes:
    poll_secs: seconds between two questions of one waiting caller; each costs the ps about half a
      millisecond of a core.
  """

  poll_secs = TIMING.queue_poll_interval

  def get(self, session, n: Optional[int] = None, up_to: bool = False,
          timeout: Optional[float] = None):
    """Takes elements out of the queue, in the manner of Python's `queue.Queue.get`.

    Args:
      session: a session of the queue's graph; no hooks are run.
      n: how many elements; None: one, without a batch dimension.
      up_to: whether fewer, at least one, will do.
      timeout: seconds to wait; 0: one look; None: until there are enough or the queue has ended.

    Returns:
      The components as numpy values, `[n, ...]` each, in the form that TensorFlow's dequeue returns
      them: a dict where they have names, the one, or a list.

    Raises:
      ValueError: an n that the queue can never hold, or batches of a queue without shapes.
      QueueEmpty: the time was over; nothing was taken. QueueEnded or QueueCancelled: the queue is
      closed, and fewer are left. QueueReset, QueueMismatch: see queue_errors.py.
    """
    wanted = self._check_n(n)
    said = "get(%s)" % ("" if n is None else n)
    call = queue_call.QueueCall(self, session, said, wanted, timeout)
    feed = {self._steps.n: wanted}
    if up_to:
      feed[self._steps.up_to] = True
    elif self._steps.quick_take:
      components = call.run(self._steps.quick_take, feed)
      if len(components[0]):
        return self._as_taken(components, n)
    while True:
      *components, (count, present, closed) = call.run(self._steps.take, feed)
      if count:
        return self._as_taken(components, n)
      call.pause(present, closed, queue_errors.QueueEmpty)

  def put(self, session, values, timeout: Optional[float] = None, many: bool = False) -> None:
    """Puts an element, or a batch of them, into the queue: all of it or nothing.

    Args:
      session: a session of the queue's graph; no hooks are run.
      values: the components of one element: a dict where they have names, the one, or a list.
      timeout: seconds to wait for room; 0: one look; None: until there is room or it is closed.
      many: whether each component is a batch, `[n, ...]`.

    Raises:
      ValueError: more than the queue can ever hold, or components that do not fit it.
      QueueFull: the time was over; nothing was put in. QueueEnded or QueueCancelled: the queue is
      closed. QueueReset, QueueMismatch: see queue_errors.py.
    """
    vals = queue_elements.as_batch(self, values, many)
    count = len(vals[0])
    if not count:
      return
    call = queue_call.QueueCall(self, session, "put(%s)" % (count if many else ""), count, timeout)
    feed = dict(zip(self._steps.vals, vals))
    if call.run_quick(self._steps.quick_put, feed):
      return
    while True:
      (done, present, closed), = call.run(self._steps.put, feed)
      if done:
        return
      call.pause(present, closed, queue_errors.QueueFull)

  def drain(self, session) -> list:
    """Takes everything that is there; returns a list of elements, each as `get` returns one."""
    elements = []
    while True:
      try:
        elements.append(self.get(session, timeout=0))
      except (queue_errors.QueueEmpty, queue_errors.QueueEnded):
        return elements

  def reopen(self, session) -> None:
    """Puts a new, empty, open queue in this one's place; what is in it is gone.

    Whatever waits in TensorFlow's own operations on it is cancelled. Other clients go on with the
    new one. After a reset of the container, it makes the queue anew for this session.

    Raises:
      RuntimeError: on TensorFlow 1.15, in a session without a server, which makes a queue once.
    """
    call = queue_call.QueueCall(self, session, "reopen()", 0, None)
    try:
      call.run(self._steps.discard)
    except queue_errors.QueueReset:
      call.run(self._steps.forget)
    call.make_anew()

  def _check_n(self, n):
    if n is None:
      return 1
    if not queue_elements.has_shapes(self):
      raise ValueError("get(n=%r) needs a queue whose shapes are known: give it shapes" % (n,))
    if isinstance(n, bool) or int(n) != n or n < 1:
      raise ValueError("n must be a number of elements above 0, got %r" % (n,))
    most = self.spec.capacity
    if 0 < most < n:
      raise ValueError("get(%d) from a queue with a capacity of %d would never end" % (n, most))
    return int(n)

  def _as_taken(self, components, n):
    if n is None and queue_elements.has_shapes(self):
      components = [component[0] for component in components]
    return queue_elements.shaped(self, components)
