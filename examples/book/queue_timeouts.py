"""Time limits on a queue: how to set them, their effect on the elements, and a form without loss.

Example B27. Section: queues.
Mechanism: `operation_timeout_in_ms` of a session, `RunOptions(timeout_in_ms)` of one run.
The queue has a capacity of 10 and holds 1, 2 and 3. The example runs `output = dequeue + 1` until
the queue is empty. One run feeds 5 in place of the dequeue: then the dequeue does not run, and
takes no element.
The limit counts for all operations of a run, not only for queues. You can still use the session
after the error. A limit in RunOptions replaces the session's limit for one run.
The book omits one thing: a `dequeue_many(4)` that finds three elements takes them, and loses them
when its time is over. (Even a single dequeue can lose an element that arrives at the end of its
time.) `get` of tf1ps' queues loses none: each element is either in the queue or with the caller.
Toolkit: bare TensorFlow, and tf1ps (docs/queues.md).

    $ python examples/book/queue_timeouts.py
    2.0
    6.0
    3.0
    4.0
    DeadlineExceededError after ... s
    it has waited 1 s: True
    still usable: 8.0
    RunOptions of 1.3 s: DeadlineExceededError, it has waited 1.3 s: True
    dequeue_many(4) of 1 2 3: DeadlineExceededError, and 0 elements left
    tf1ps' get(4) of 1 2 3: QueueEmpty, and 3 elements left
"""

import time

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.state import QueueEmpty


def timed_out(function, *arguments, **keywords):
  """Makes a call that must reach its limit; returns the error's name and the seconds."""
  begin = time.time()
  try:
    function(*arguments, **keywords)
  except (tf.errors.DeadlineExceededError, QueueEmpty) as error:
    return type(error).__name__, time.time() - begin
  raise AssertionError("there was no limit")


def main():
  """Runs into limits on local queues; on a ps it is the same."""
  tf.disable_v2_behavior()
  queue = tf.queue.FIFOQueue(10, [tf.float32], [[]])
  element = tf.placeholder(tf.float32, [])
  enqueue = queue.enqueue(element)
  dequeue = queue.dequeue()  # tf1ps-doctor: ignore[timeout-loses-elements]
  output = dequeue + 1
  dequeue_four = queue.dequeue_many(4)  # tf1ps-doctor: ignore[timeout-loses-elements]
  size = queue.size()
  ours = tf1ps.FIFOQueue(10, [tf.float32], [[]])

  config = tf.ConfigProto(operation_timeout_in_ms=1000)
  with tf.Session(config=config) as session:
    for value in (1, 2, 3):
      session.run(enqueue, {element: value})
    print(float(session.run(output)))
    print(float(session.run(output, {dequeue: 5})))
    print(float(session.run(output)))
    print(float(session.run(output)))
    error, seconds = timed_out(session.run, output)
    print("%s after %.1f s" % (error, seconds))
    print("it has waited 1 s:", seconds >= 0.99)
    session.run(enqueue, {element: 7})
    print("still usable:", float(session.run(output)))

    longer = tf.RunOptions(timeout_in_ms=1300)
    error, seconds = timed_out(session.run, output, options=longer)
    print("RunOptions of 1.3 s: %s, it has waited 1.3 s: %s" % (error, seconds >= 1.29))

    for value in (1, 2, 3):
      session.run(enqueue, {element: value})
    error, _ = timed_out(session.run, dequeue_four)
    print("dequeue_many(4) of 1 2 3: %s, and %d elements left" % (error, session.run(size)))
    ours.put(session, [1, 2, 3], many=True)
    error, _ = timed_out(ours.get, session, 4, timeout=0.1)
    print("tf1ps' get(4) of 1 2 3: %s, and %d elements left" % (
      error, session.run(ours.size())))


if __name__ == "__main__":
  main()
