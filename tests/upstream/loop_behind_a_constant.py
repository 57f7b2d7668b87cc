"""A loop that waits for a constant is taken for one that begins with it, and may lose its body.

Expected: 3 rounds.
"""
import tensorflow.compat.v1 as tf
from helper import name, ready, say, within

tf.disable_v2_behavior()
count = tf.placeholder(tf.int32, [])
with tf.control_dependencies([tf.constant(0) + count]):
  waiting = tf.constant(0)
with tf.control_dependencies([waiting]):
  _, rounds = tf.while_loop(lambda left, _: left > 0, lambda left, done: (left - 1, done + 1),
                            [count, tf.constant(0)])
session = tf.Session()
ready()
found = within(45, lambda: session.run(rounds, {count: 3}))
say(name(found) if isinstance(found, Exception) else "%s rounds" % found)
