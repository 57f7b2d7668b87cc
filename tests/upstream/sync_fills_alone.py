"""Under SyncReplicasOptimizer one worker fills an update of two with its own gradients.

Expected: it waits for the other one.
"""
import tensorflow.compat.v1 as tf
from helper import leave, ready, within

tf.disable_eager_execution()
w = tf.get_variable("w", initializer=0.0)
step = tf.train.create_global_step()
optimizer = tf.train.SyncReplicasOptimizer(
  tf.train.GradientDescentOptimizer(0.1), replicas_to_aggregate=2, total_num_replicas=2)
train = optimizer.minimize(tf.square(w - 1.0), global_step=step)
hook = optimizer.make_session_run_hook(is_chief=True)
with tf.train.MonitoredTrainingSession(hooks=[hook]) as session:
  ready()

  def work():
    for _ in range(4):
      session.run(train)
    return session.run(step)

  found = within(45, work)
  leave("it waits" if found == "nothing" else "an update with gradients of one worker")
