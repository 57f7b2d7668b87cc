"""Closing a queue: the calls that still work, the calls that wait, and the remaining elements.

Example B19. Section: queues.
Mechanism: the end of a stream; `close`, with and without `cancel_pending_enqueues`.
A closed queue accepts no more elements and returns the remaining ones. The book is wrong in one
point: a `dequeue_many` does not lose the elements when too few are left. On a *closed* queue it
fails and gives back the elements that it has taken, even if it was already waiting at the close.
(A dequeue_many that is cancelled, for example by a timeout, does lose them: queue_timeouts.py.)
`close()` itself waits for pending enqueues. With cancel_pending_enqueues it ends them.
tf1ps distinguishes the two ends: QueueEnded, or QueueCancelled if the producers gave up.
Toolkit: bare TensorFlow, and tf1ps. docs/queues.md has the result of each call after each event.

    $ python examples/book/closing_a_queue.py
    closed with 1 2 3
      enqueue: CancelledError
      dequeue_many(2): [1, 2]
      dequeue_many(2): OutOfRangeError, and 1 left
      dequeue_up_to(2): [3]
      dequeue: OutOfRangeError
    closed under a dequeue_many(3) that has taken 1 2
      dequeue_many(3): OutOfRangeError, and 2 left
    closed under an enqueue_many of 2 3 4, capacity 2
      close waits; the elements that come out: [1, 2, 3, 4]
    the same, with cancel_pending_enqueues
      enqueue_many: CancelledError
      the elements that come out: [1, 2]
    tf1ps
      get(2) of 1: QueueEnded, and 1 left
      put: QueueEnded
      put after close(cancel_pending_enqueues=True): QueueCancelled
"""

import threading
import time

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.state import QueueError


def attempt(function, *arguments, **keywords):
  """Makes a call; returns its result as a list or number, or the name of its error."""
  try:
    result = function(*arguments, **keywords)
    return result.tolist() if hasattr(result, "tolist") else result
  except (tf.errors.OpError, QueueError) as error:
    return type(error).__name__


class Calling(threading.Thread):
  """A call in a thread of its own, as another client would make it."""

  def __init__(self, *call):
    super().__init__()
    self.call = call
    self.start()

  def run(self):
    """Makes the call."""
    self.result = attempt(*self.call)

  def outcome(self):
    """Waits for its end."""
    self.join()
    return self.result


def until_size(session, queue, wanted, limit=30.0):
  """Waits until the queue shows so many elements."""
  end = time.time() + limit
  size = queue.size()
  while session.run(size) != wanted:
    assert time.time() < end, "the queue never had %d elements" % wanted
    time.sleep(0.01)


def draining(session):
  """The remaining elements come out, and none is lost."""
  print("closed with 1 2 3")
  queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
  session.run(queue.enqueue_many([[1, 2, 3]]))
  session.run(queue.close())
  print("  enqueue:", attempt(session.run, queue.enqueue(4)))
  print("  dequeue_many(2):", attempt(session.run, queue.dequeue_many(2)))
  print("  dequeue_many(2): %s, and %d left" % (
    attempt(session.run, queue.dequeue_many(2)), session.run(queue.size())))
  print("  dequeue_up_to(2):", attempt(session.run, queue.dequeue_up_to(2)))
  print("  dequeue:", attempt(session.run, queue.dequeue()))


def under_a_dequeue(session):
  """A waiting dequeue_many hides the elements that it has taken, and gives them back."""
  print("closed under a dequeue_many(3) that has taken 1 2")
  queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
  session.run(queue.enqueue_many([[1, 2]]))
  waiting = Calling(session.run, queue.dequeue_many(3))
  until_size(session, queue, 0)
  session.run(queue.close())
  print("  dequeue_many(3): %s, and %d left" % (waiting.outcome(), session.run(queue.size())))


def under_an_enqueue(session, cancel):
  """An enqueue_many that waits for room, and a close behind it."""
  queue = tf.queue.FIFOQueue(2, [tf.int32], [[]])
  dequeue, close = queue.dequeue(), queue.close(cancel_pending_enqueues=cancel)
  session.run(queue.enqueue(1))
  pending = Calling(session.run, queue.enqueue_many([[2, 3, 4]]))
  until_size(session, queue, 2)  # 2 is in, 3 and 4 wait
  closing = Calling(session.run, close)
  if cancel:
    print("  enqueue_many:", pending.outcome())
    closing.outcome()
  elements = [attempt(session.run, dequeue)]
  while elements[-1] != "OutOfRangeError":
    elements.append(attempt(session.run, dequeue))
  closing.outcome()
  pending.outcome()
  print("  %sthe elements that come out:" % ("" if cancel else "close waits; "), elements[:-1])


def with_tf1ps(session):
  """The same ends by `get` and `put`."""
  print("tf1ps")
  queue = tf1ps.FIFOQueue(10, [tf.int32], [[]])
  queue.put(session, 1)
  session.run(queue.close())
  print("  get(2) of 1: %s, and %d left" % (
    attempt(queue.get, session, 2), session.run(queue.size())))
  print("  put:", attempt(queue.put, session, 2))
  given_up = tf1ps.FIFOQueue(10, [tf.int32], [[]])
  session.run(given_up.close(cancel_pending_enqueues=True))
  print("  put after close(cancel_pending_enqueues=True):", attempt(given_up.put, session, 2))


def main():
  """Goes through the cases, each with a queue of its own."""
  tf.disable_v2_behavior()
  with tf.Session() as session:
    draining(session)
    under_a_dequeue(session)
    print("closed under an enqueue_many of 2 3 4, capacity 2")
    under_an_enqueue(session, cancel=False)
    print("the same, with cancel_pending_enqueues")
    under_an_enqueue(session, cancel=True)
    with_tf1ps(session)


if __name__ == "__main__":
  main()
