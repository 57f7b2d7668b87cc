"""`tf.container` outside of `graph.as_default()` does nothing, and says nothing.

Expected: the container "job".
"""
import tensorflow.compat.v1 as tf
from helper import ready, say

ready()
with tf.container("job"), tf.Graph().as_default():
  queue = tf.queue.FIFOQueue(10, [tf.int32], [[]])
say("container %r" % queue.queue_ref.op.get_attr("container").decode())
