"""A Python signal handler does not run while the main thread waits in `Session.run`.

Expected: the handler runs.
"""
import os
import signal
import threading

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

tf.disable_eager_execution()
server = tf.train.Server({"ps": [address()]}, "ps", 0)
with tf.device("/job:ps/task:0"):
  take = tf.queue.FIFOQueue(10, [tf.int32], [[]]).dequeue()
session = tf.Session(server.target)
signal.signal(signal.SIGTERM, lambda *unused: leave("the handler runs"))
ready()
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM)).start()
threading.Timer(6.0, leave, ("ignored for 5 s",)).start()
session.run(take)
