"""With `max_wait_secs` below 30 a worker that should wait for its chief fails at once.

Expected: an error after 29 seconds.
"""
import time

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

tf.disable_eager_execution()
server = tf.train.Server({"worker": [address()]}, "worker", 0)
tf.get_variable("w", initializer=2.0)
tf.train.create_global_step()
ready()
began = time.time()
try:
  tf.train.MonitoredTrainingSession(server.target, is_chief=False, max_wait_secs=29)
except tf.errors.DeadlineExceededError:
  leave("an error %s" % ("at once" if time.time() - began < 25 else "after 29 s"))
