"""Linear regression in plain sessions; the chief initialises, the others look until it has."""
from __future__ import print_function

import time

import numpy as np
import tensorflow as tf

tf.app.flags.DEFINE_string("ps_hosts", "localhost:2222", "")
tf.app.flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224", "")
tf.app.flags.DEFINE_string("job_name", "", "either 'ps' or 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "")
FLAGS = tf.app.flags.FLAGS

training_steps = 100
learning_rate = 0.05


def main(_):
  cluster = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

  if FLAGS.job_name == "ps":
    server.join()
  elif FLAGS.job_name == "worker":
    with tf.device(tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
      X = tf.placeholder("float", [None, 3])
      Y = tf.placeholder("float", [None])
      W = tf.Variable(tf.zeros([3, 1]), name="W")
      b = tf.Variable(tf.zeros([1]), name="b")
      counter = tf.Variable(0, name="counter", trainable=False)
      prediction = tf.reshape(tf.matmul(X, W) + b, [-1])
      cost = tf.reduce_mean(tf.square(prediction - Y))
      train = tf.train.GradientDescentOptimizer(learning_rate).minimize(cost)
      count = tf.assign_add(counter, 1, use_locking=True)
      init = tf.global_variables_initializer()
      uninitialized = tf.report_uninitialized_variables()

    sess = tf.Session(server.target)
    if FLAGS.task_index == 0:
      sess.run(init)
    else:
      while len(sess.run(uninitialized)) > 0:
        print("waiting for the chief...")
        time.sleep(0.5)

    for i in range(training_steps):
      data = np.random.randn(16, 3)
      _, value = sess.run([train, cost], feed_dict={X: data, Y: data.sum(axis=1) + 4})
      total = sess.run(count)
      if (i + 1) % 20 == 0:
        print("step %d, cost %f" % (i + 1, value))
    print("worker %d: %d local steps, global step %d" % (
        FLAGS.task_index, training_steps, total))
    print("done")


if __name__ == "__main__":
  tf.app.run()
