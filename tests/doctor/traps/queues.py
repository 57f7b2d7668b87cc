"""Queues and accumulators that lose what they are given."""
import sys

import tensorflow as tf

server = tf.train.Server({"ps": [sys.argv[2]]}, "ps", int(sys.argv[1]))
limit = tf.RunOptions(timeout_in_ms=1000)
with tf.device("/job:ps/task:0"):
  queue = tf.queue.RandomShuffleQueue(100, 10, [tf.int32], [[]], shared_name="numbers")
  nothing = tf.FIFOQueue(0, [tf.int32], shared_name="nothing")  # trap: queue-capacity
  four = queue.dequeue_many(4)  # trap: timeout-loses-elements
  rest = queue.dequeue_up_to(4)  # trap: dequeue-up-to-waits
  gradients = tf.ConditionalAccumulator(tf.float32, [2], shared_name="gradients")
  rows = tf.SparseConditionalAccumulator(tf.float32, [9, 2], shared_name="rows")  # trap: sparse-accumulator-mean
  push = gradients.apply_grad([1.0, 2.0], local_step=3)  # trap: accumulator-drops-gradients
  mean = gradients.take_grad(2)  # trap: take-grad-averages-all
  area = tf.contrib.staging.StagingArea([tf.float32])
  staged = area.get()  # trap: staging-area-ghost



def serve(count):
  with tf.device("/job:ps/task:0"):
    done = tf.FIFOQueue(count, tf.int32, shared_name="done")
  end = done.dequeue()  # trap: ps-leaves-at-once
  for _ in range(count):
    session.run(end, options=tf.RunOptions())


with tf.Session(server.target) as session:  # trap: session-without-limit
  session.run([four, staged], options=limit)
  session.run([rest, push, mean, rows.num_accumulated(), nothing.size()])
serve(3)
