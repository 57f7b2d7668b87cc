"""The errors of queues, a type per reason.

  QueueTimeout     the call timed out: `QueueEmpty` from a get, `QueueFull` from a put (these are
                   also Python's own `queue.Empty` and `queue.Full`)
  QueueEnded       the queue is closed: the elements or the room will never be there
  QueueCancelled   like QueueEnded, but the queue was closed with cancel_pending_enqueues, because
                   its producers gave up
  QueueReset       the queue's container was reset, and the queue with it
  QueueMismatch    another kind of queue lives under the name
  QueueUnanswered  the ps did not answer a request, which it may carry out later

After each error but the last, every element is in the queue or with its caller.
"""

from __future__ import annotations

import queue
from typing import NamedTuple, Optional

from tf1ps.compat import Error


class QueueView(NamedTuple):
  """A queue as a call saw it."""

  queue: str  # its class and name
  device: str  # its device; "" if TensorFlow chose it
  operation: str  # "get(4)"
  requested: int  # the number of elements that the call asks for
  present: int  # the number of elements that the last request could have taken
  capacity: int  # elements; below 0: no limit
  closed: bool
  elapsed: float  # seconds since the call began


class QueueError(Error, RuntimeError):
  """A call on a queue failed.

  Attributes:
    status: the `QueueView`, or None if the queue could not be read.
  """

  def __init__(self, reason: str, status: Optional[QueueView] = None):
    text = reason
    if status is not None:
      text = "%s on %s at %s %s after %.3f s: requested %d, present %d, capacity %s, %s" % (
        status.operation, status.queue, status.device or "the session's default device", reason,
        status.elapsed, status.requested, status.present,
        status.capacity if status.capacity >= 0 else "unlimited",
        "closed" if status.closed else "open")
    super().__init__(text)
    self.status = status


class QueueTimeout(QueueError):
  """The call timed out."""


class QueueEmpty(QueueTimeout, queue.Empty):
  """The call timed out before there were enough elements."""


class QueueFull(QueueTimeout, queue.Full):
  """The call timed out before there was room."""


class QueueEnded(QueueError):
  """The queue is closed: it takes no elements, or has fewer than requested."""


class QueueCancelled(QueueEnded):
  """Like QueueEnded; the queue was closed with cancel_pending_enqueues."""


class QueueReset(QueueError):
  """The queue's container was reset."""


class QueueUnanswered(QueueError):
  """The ps did not answer within the timeout and a margin, which `TIMING.answer_limit` sets.

  The call no longer waits for its request. If the ps continues, it may still carry the request out:
  then the elements of a `get` are lost, and the elements of a `put` are in the queue.
  """


class QueueMismatch(QueueError, ValueError):
  """A queue of another kind lives under the name."""
