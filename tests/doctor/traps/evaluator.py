"""An evaluator that outlives its job, and a strategy that returns nothing."""
import time

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
strategy = tf.distribute.experimental.ParameterServerStrategy()
value = strategy.run(lambda: tf.constant(1.0))  # trap: strategy-loses-result
saver = tf.train.Saver([tf.get_variable("w", [])])
while True:  # trap: evaluator-never-ends
  path = tf.train.latest_checkpoint("/data/model")
  if path:
    with tf.Session() as session:
      saver.restore(session, path)
      print(session.run(value))
  time.sleep(60)
