"""A RandomShuffleQueue: batches at random, over a floor that keeps them random.

Example B20. Section: queues.
Mechanism: `min_after_dequeue`, the number of elements that must stay in the queue.
The queue holds 22 elements, has a capacity of 50 and a floor of 10, and gives batches of 5. Two
batches leave 12 elements. The third batch must wait, because it would leave 7. Once you close the
queue, the floor does not count any more, and all remaining elements come out.
The book omits one thing: while the third `dequeue_many` waits, it takes the two elements above the
floor. If a timeout ends it, they are lost. `get` of tf1ps' queue leaves them in the queue.
Toolkit: bare TensorFlow, and tf1ps (docs/queues.md).

    $ python examples/book/shuffle_queue.py
    tf.queue.RandomShuffleQueue
      sizes 22, 17, 12
      third batch: DeadlineExceededError, and 10 elements left
      after close: batches of 5 and 5
      each element at most once: True; in order: False; lost: 2
    tf1ps.RandomShuffleQueue
      sizes 22, 17, 12
      third batch: QueueEmpty, and 12 elements left
      after close: batches of 5 and 5 and 2
      each element at most once: True; in order: False; lost: 0
"""

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.state import QueueEmpty, QueueEnded

COUNT, BATCH, SECONDS = 22, 5, 0.5


def show(session, queue, take, take_rest):
  """Empties a queue by batches; `take` and `take_rest` return one, as a list."""
  size = queue.size()
  session.run(queue.enqueue_many([list(range(COUNT))]))
  sizes, taken = [session.run(size)], []
  for _ in range(2):
    taken += take()
    sizes.append(session.run(size))
  print("  sizes", ", ".join("%d" % n for n in sizes))
  try:
    take()
  except (tf.errors.DeadlineExceededError, QueueEmpty) as error:
    print("  third batch: %s, and %d elements left" % (type(error).__name__, session.run(size)))
  session.run(queue.close())
  rest = []
  try:
    while True:
      rest.append(take_rest())
  except (tf.errors.OutOfRangeError, QueueEnded):
    pass
  print("  after close: batches of", " and ".join("%d" % len(batch) for batch in rest))
  taken += sum(rest, [])
  print("  each element at most once: %s; in order: %s; lost: %d" % (
    len(taken) == len(set(taken)), taken == sorted(taken), COUNT - len(taken)))


def main():
  """Shows TensorFlow's queue and ours."""
  tf.disable_v2_behavior()
  arguments = {"capacity": 50, "min_after_dequeue": 10, "dtypes": [tf.int32], "shapes": [[]],
               "seed": 7}
  queue = tf.queue.RandomShuffleQueue(**arguments)
  batch = queue.dequeue_many(BATCH)  # tf1ps-doctor: ignore[timeout-loses-elements]
  rest = queue.dequeue_up_to(BATCH)
  ours = tf1ps.RandomShuffleQueue(**arguments)
  limit = tf.RunOptions(timeout_in_ms=int(1000 * SECONDS))
  with tf.Session() as session:
    print("tf.queue.RandomShuffleQueue")
    show(session, queue, lambda: session.run(batch, options=limit).tolist(),
         lambda: session.run(rest).tolist())
    print("tf1ps.RandomShuffleQueue")
    show(session, ours, lambda: ours.get(session, BATCH, timeout=SECONDS).tolist(),
         lambda: ours.get(session, BATCH, up_to=True).tolist())


if __name__ == "__main__":
  main()
