"""A step fails with CancelledError, without the cause, when its ps drops the session.

Expected: AbortedError, from which MonitoredSession recovers. A ps drops the sessions of a task when
another process of the task opens one; TensorFlow 1.15 makes all runs.
"""
import threading
import time

import tensorflow.compat.v1 as tf
from helper import address, leave, name, ready, within

tf.disable_v2_behavior()
ps, *workers = [address() for _ in range(3)]
specs = [tf.train.ClusterSpec({"ps": [ps], "worker": [worker]}) for worker in workers]
servers = [tf.train.Server(specs[0], "ps", 0), *(tf.train.Server(each, "worker", 0)
                                                  for each in specs)]
config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
with tf.device("/job:worker/task:0"):
  value = tf.random_uniform([1000])
for job in 5 * ("ps", "worker"):
  with tf.device("/job:%s/task:0" % job):
    value = value * 2 + tf.random_uniform([])
until = time.time() + 40


def run_in_a_session(server, runs):
  """Makes so many runs in a new session, which stays open."""
  session = tf.Session(server.target, value.graph, config)
  for _ in range(runs):
    session.run(value.op)


def disturb():
  while time.time() < until:
    within(2, lambda: run_in_a_session(servers[2], 2))


ready()
threading.Thread(target=disturb, daemon=True).start()
seen = set()
while time.time() < until and "CancelledError" not in seen:
  seen.add(name(within(5, lambda: run_in_a_session(servers[1], 1000000))))
seen.discard("nothing" if len(seen) > 1 else "")
names = " and ".join(seen).replace("nothing", "no error")
leave("CancelledError" if "CancelledError" in seen else names)
