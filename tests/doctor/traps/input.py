"""A loop that never learns of its runners' errors."""
import tensorflow as tf

lines = tf.train.string_input_producer(["a.csv"])
_, line = tf.TextLineReader().read(lines)
with tf.Session() as session:
  tf.train.start_queue_runners(session)  # trap: runners-without-coordinator
  while True:
    print(session.run(line))
