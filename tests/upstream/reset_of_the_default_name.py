"""`Session.reset(target, [""])` does not clear the default container.

Expected: the variable is gone.
"""
import tensorflow.compat.v1 as tf
from helper import address, leave, name, ready, within

tf.disable_eager_execution()
server = tf.train.Server({"ps": [address()]}, "ps", 0)
with tf.device("/job:ps/task:0"):
  w = tf.get_variable("w", initializer=2.0)
with tf.Session(server.target) as session:
  session.run(w.initializer)
ready()
tf.Session.reset(server.target, [""])
session = tf.Session(server.target)
found = within(45, lambda: session.run(w))
leave("the variable is %s" % ("there" if found == 2.0 else "gone: " + name(found)))
