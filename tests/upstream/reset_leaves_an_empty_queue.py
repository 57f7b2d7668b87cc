"""After a reset through another server, a session goes on with a new and empty queue.

Expected: NotFoundError.
"""
import tensorflow.compat.v1 as tf
from helper import address, leave, name, ready, within

tf.disable_eager_execution()
jobs = {"ps": [address()], "worker": [address()]}
ps, worker = tf.train.Server(jobs, "ps", 0), tf.train.Server(jobs, "worker", 0)
with tf.container("job"), tf.device("/job:ps/task:0"):
  queue = tf.queue.FIFOQueue(10, [tf.int32], [[]], shared_name="numbers")
  put, size = queue.enqueue_many([[1, 2, 3]]), queue.size()
session = tf.Session(worker.target)
session.run(put)
ready()
tf.Session.reset(ps.target, ["job"])
found = within(45, lambda: "%d elements" % session.run(size))
leave(name(found))
