"""A queue whose elements are tuples: a number, and a matrix.

Example B18. Section: queues.
Mechanism: components of different types and shapes in one queue.
`dequeue` returns a list of tensors, one per component. It takes a whole element out of the queue,
even if you run only one of the tensors; the rest of that element is then lost. So run all
components in one call. `dequeue_many(n)` stacks each component, with a new first dimension of n.
Toolkit: bare TensorFlow, and tf1ps. tf1ps.FIFOQueue takes the same arguments. Its `get` always
returns the whole element, here by names (docs/queues.md).

    $ python examples/book/queue_of_tuples.py
    number 10
    matrix [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    only the number, 11; its matrix is gone: 2 elements left of 3
    numbers [12, 13]
    matrices of shape (2, 3, 2)
    tf1ps: [('matrix', [[7.0, 8.0], [9.0, 0.0], [0.0, 0.0]]), ('number', 14)]
"""

import tensorflow.compat.v1 as tf

import tf1ps

TYPES, SHAPES = [tf.int32, tf.float32], [[], [3, 2]]
ELEMENTS = [
  (10, [[1, 2], [3, 4], [5, 6]]),
  (11, [[1, 1], [2, 2], [3, 3]]),
  (12, [[4, 4], [5, 5], [6, 6]]),
  (13, [[7, 7], [8, 8], [9, 9]]),
]


def main():
  """Puts four elements into the queue, and takes them out."""
  tf.disable_v2_behavior()
  queue = tf.queue.FIFOQueue(10, TYPES, SHAPES)
  number, matrix = tf.placeholder(tf.int32), tf.placeholder(tf.float32)
  enqueue = queue.enqueue([number, matrix])
  one, some = queue.dequeue(), queue.dequeue_many(2)
  size = queue.size()
  ours = tf1ps.FIFOQueue(10, TYPES, SHAPES, names=["number", "matrix"])
  with tf.Session() as session:
    for values in ELEMENTS:
      session.run(enqueue, dict(zip((number, matrix), values)))
    numbers, matrices = session.run(one)
    print("number", int(numbers))
    print("matrix", matrices.tolist())
    before = session.run(size)
    print("only the number, %d; its matrix is gone: %d elements left of %d" % (
      session.run(one[0]), session.run(size), before))
    numbers, matrices = session.run(some)
    print("numbers", numbers.tolist())
    print("matrices of shape", matrices.shape)
    ours.put(session, {"number": 14, "matrix": [[7, 8], [9, 0], [0, 0]]})
    print("tf1ps:", sorted((name, value.tolist())
                           for name, value in ours.get(session, timeout=0).items()))


if __name__ == "__main__":
  main()
