"""The close of a session that waits in a `dequeue_many` drops the elements that it had taken.

Expected: 3 elements.
"""
import threading
import time

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

tf.disable_eager_execution()
server = tf.train.Server({"ps": [address()]}, "ps", 0)
with tf.device("/job:ps/task:0"):
  queue = tf.queue.FIFOQueue(10, [tf.int32], [[]], shared_name="numbers")
  put, batch, size = queue.enqueue_many([[1, 2, 3]]), queue.dequeue_many(4), queue.size()
one, other = tf.Session(server.target), tf.Session(server.target)
other.run(put)


def take():
  try:
    one.run(batch)
  except tf.errors.OpError:
    pass


ready()
thread = threading.Thread(target=take, daemon=True)
thread.start()
while other.run(size):  # taken, and hidden in the waiting operation
  time.sleep(0.05)
one.close()
thread.join()
leave("%d elements" % other.run(size))
