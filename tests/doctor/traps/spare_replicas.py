"""Two models whose synchronous replicas meet in one queue, and that nobody updates."""
import sys

import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
server = tf.train.Server({"ps": hosts[:1], "worker": hosts[1:]}, job, index)
if job == "ps":
  server.join()  # trap: server-join-never-ends

num_workers = len(hosts) - 1
with tf.device(tf.train.replica_device_setter(1, worker_device="/job:worker/task:%d" % index)):
  step = tf.train.get_or_create_global_step()
  w = tf.get_variable("w", [])
  v = tf.get_variable("v", [])
  one = tf.train.SyncReplicasOptimizer(  # trap: sync-drops-gradients, sync-without-chief-thread
    tf.train.GradientDescentOptimizer(0.1), num_workers - 1, num_workers)
  two = tf.train.SyncReplicasOptimizer(  # trap: sync-optimizers-collide, sync-without-chief-thread
    tf.train.GradientDescentOptimizer(0.1), num_workers, num_workers)
  train_op = tf.group(one.minimize(tf.square(w), step), two.minimize(tf.square(v), step))

with tf.Session(server.target) as session:  # trap: session-without-limit
  session.run(tf.global_variables_initializer())  # trap: chief-restart-goes-back
  session.run(train_op)
