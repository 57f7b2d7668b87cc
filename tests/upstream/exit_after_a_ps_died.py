"""After a ps has died, Python does not exit, because the session's destructor closes it.

Expected: the process ends.
"""
import tensorflow.compat.v1 as tf
from helper import address, ready, start_ps, within

tf.disable_eager_execution()
jobs = {"ps": [address()], "worker": [address()]}
ps = start_ps(jobs)
server = tf.train.Server(jobs, "worker", 0)
with tf.device("/job:ps/task:0"):
  w = tf.get_variable("w", initializer=2.0)
with tf.device("/job:worker/task:0"):
  more = w + 1.0
session = tf.Session(server.target)
session.run(w.initializer)
session.run(more)
ps.kill()
ps.wait()
within(3, lambda: session.run(more))
ready()
