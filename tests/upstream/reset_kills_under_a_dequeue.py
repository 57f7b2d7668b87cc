"""A reset of a container in which a `dequeue` waits ends the process of the server.

Expected: CancelledError.
"""
import threading
import time

import tensorflow.compat.v1 as tf
from helper import address, leave, name, ready

tf.disable_eager_execution()
server = tf.train.Server({"ps": [address()]}, "ps", 0)
with tf.container("job"), tf.device("/job:ps/task:0"):
  take = tf.queue.FIFOQueue(10, [tf.int32], [[]], shared_name="numbers").dequeue()
session, ends = tf.Session(server.target), []


def wait():
  try:
    session.run(take)
  except Exception as error:
    ends.append(error)


ready()
threading.Thread(target=wait, daemon=True).start()
time.sleep(1.0)
tf.Session.reset(server.target, ["job"])
while not ends:
  time.sleep(0.05)
time.sleep(1.0)
leave(name(ends[0]))
