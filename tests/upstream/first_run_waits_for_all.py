"""The first run of a session waits for every task of the cluster, whatever timeouts it has.

Expected: DeadlineExceededError after 2 seconds.
"""
import tensorflow.compat.v1 as tf
from helper import address, leave, name, ready, within

tf.disable_eager_execution()
jobs = {"ps": [address()], "worker": [address()]}  # the worker never starts
server = tf.train.Server(jobs, "ps", 0)
config = tf.ConfigProto(operation_timeout_in_ms=2000)
session = tf.Session(server.target, config=config)
with tf.device("/job:ps/task:0"):
  one = tf.constant(1)
ready()
found = within(8, lambda: session.run(one, options=tf.RunOptions(timeout_in_ms=2000)))
leave("no end within 8 s" if found == "nothing" else name(found))
