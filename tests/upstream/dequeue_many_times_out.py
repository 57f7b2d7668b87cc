"""A `dequeue_many` that times out drops the elements that it had taken.

Expected: 3 elements.
"""
import tensorflow.compat.v1 as tf
from helper import ready, say

tf.disable_eager_execution()
queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
batch = queue.dequeue_many(4)
with tf.Session() as session:
  session.run(queue.enqueue_many([[1, 2, 3]]))
  ready()
  try:
    session.run(batch, options=tf.RunOptions(timeout_in_ms=200))
  except tf.errors.DeadlineExceededError:
    pass
  say("%d elements" % session.run(queue.size()))
