"""A `dequeue` of one element loses it if the timeout falls together with the arrival.

Expected: none lost.
"""
import threading
import time

import tensorflow.compat.v1 as tf
from helper import address, leave, ready

tf.disable_eager_execution()
server = tf.train.Server({"ps": [address()]}, "ps", 0)
with tf.device("/job:ps/task:0"):
  queue = tf.queue.FIFOQueue(10000, [tf.int32], [[]], shared_name="numbers")
  put, take, size = queue.enqueue(1), queue.dequeue(), queue.size()
producer, consumer = tf.Session(server.target), tf.Session(server.target)
producer.run(size)
ready()
until = time.time() + 6.0
taken, made = 0, []


def produce():
  while time.time() < until:
    producer.run(put)
    made.append(1)


thread = threading.Thread(target=produce)
thread.start()
while thread.is_alive():
  try:
    consumer.run(take, options=tf.RunOptions(timeout_in_ms=3))
    taken += 1
  except (tf.errors.DeadlineExceededError, tf.errors.CancelledError):
    pass
leave("none lost" if taken + producer.run(size) == len(made) else "some lost")
