"""Every worker believes to be the chief, and none starts the thread that updates."""
import sys

import tensorflow as tf


class Model(object):

  def __init__(self):
    self.build()

  def build(self):
    self.w = tf.get_variable("w", [])  # trap: unpinned-variable
    self.accuracy = tf.metrics.mean(self.w)

  def update(self):
    self.mean = tf.metrics.mean(self.w)  # trap: local-variable-on-ps
    step = tf.train.get_or_create_global_step()
    optimizer = tf.train.SyncReplicasOptimizer(  # trap: sync-without-chief-thread, sync-ends-with-chief
      tf.train.GradientDescentOptimizer(0.1), 2, 2)
    self.runner = optimizer.get_chief_queue_runner()
    return optimizer.minimize(tf.square(self.w), step)

  def train(self, setter):
    with tf.device(setter):
      pass
    return self.w


def main():
  job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
  cluster = tf.train.ClusterSpec({"ps": hosts[:1], "worker": hosts[1:]})
  server = tf.train.Server(cluster, job, index)
  if job == "ps":
    server.join()  # trap: server-join-never-ends
  model = Model()
  with tf.device(tf.train.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % index)):
    train_op = model.update()
  with tf.train.MonitoredTrainingSession(  # trap: every-worker-is-chief, session-without-limit
      server.target) as session:
    while not session.should_stop():
      session.run(train_op)


main()
