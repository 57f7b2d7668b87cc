"""An `enqueue_many` that times out puts some of its elements into the queue, and says not how many.

Expected: 0 elements.
"""
import tensorflow.compat.v1 as tf
from helper import ready, say

tf.disable_eager_execution()
queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
with tf.Session() as session:
  ready()
  try:
    session.run(queue.enqueue_many([list(range(14))]),
                options=tf.RunOptions(timeout_in_ms=200))
  except tf.errors.DeadlineExceededError:
    pass
  say("%d elements" % session.run(queue.size()))
