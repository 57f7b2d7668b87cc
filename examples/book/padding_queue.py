"""A PaddingFIFOQueue: elements of different sizes in one batch, filled up with zeros.

Example B21. Section: queues.
Mechanism: dimensions of unknown size, which the queue pads when you take a batch.
A 3x2, a 1x1 and a 2x4 matrix become a batch of three 3x4 matrices: each dimension is that of the
largest matrix in this batch. The padding depends on the batch, not on the queue, so elements that
you take one by one keep their sizes. A FIFOQueue without shapes holds such elements, too, but it
gives no batches. A zero of the padding looks like a zero of the data. If this matters, make the
true shape a second component.
Toolkit: bare TensorFlow, and tf1ps. `get(n)` of tf1ps.PaddingFIFOQueue pads in the same way
(docs/queues.md).

    $ python examples/book/padding_queue.py
    together:
      [[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0], [5.0, 6.0, 0.0, 0.0]]
      [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
      [[7.0, 8.0, 9.0, 5.0], [6.0, 7.0, 8.0, 9.0], [0.0, 0.0, 0.0, 0.0]]
    true shapes: [[3, 2], [1, 1], [2, 4]]
    one by one:
      [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
      [[1.0]]
      [[7.0, 8.0, 9.0, 5.0], [6.0, 7.0, 8.0, 9.0]]
    tf1ps, the same batch: True
"""

import tensorflow.compat.v1 as tf

import tf1ps

MATRICES = [
  [[1, 2], [3, 4], [5, 6]],
  [[1]],
  [[7, 8, 9, 5], [6, 7, 8, 9]],
]
TYPES, SHAPES = [tf.float32, tf.int32], [[None, None], [2]]


def main():
  """Puts the matrices in twice, and takes them out together, and one by one."""
  tf.disable_v2_behavior()
  queue = tf.queue.PaddingFIFOQueue(10, TYPES, SHAPES)
  matrix = tf.placeholder(tf.float32, [None, None])
  enqueue = queue.enqueue([matrix, tf.shape(matrix)])
  together, single = queue.dequeue_many(3), queue.dequeue()
  ours = tf1ps.PaddingFIFOQueue(10, TYPES, SHAPES)
  with tf.Session() as session:
    for values in MATRICES + MATRICES:
      session.run(enqueue, {matrix: values})
    batch, shapes = session.run(together)
    print("together:")
    for padded in batch.tolist():
      print(" ", padded)
    print("true shapes:", shapes.tolist())
    print("one by one:")
    for _ in MATRICES:
      print(" ", session.run(single)[0].tolist())
    for values, shape in zip(MATRICES, shapes):
      ours.put(session, [values, shape])
    print("tf1ps, the same batch:", ours.get(session, 3)[0].tolist() == batch.tolist())


if __name__ == "__main__":
  main()
