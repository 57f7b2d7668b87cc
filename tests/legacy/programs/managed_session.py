"""Two classes on a ring, told apart by two layers; sv.managed_session and tf.layers."""
from __future__ import print_function

import argparse
import sys

import numpy as np
import tensorflow as tf

FLAGS = None


def model(x, is_training):
  net = tf.layers.dense(x, 16, name="dense1")
  net = tf.layers.batch_normalization(net, training=is_training, name="bn1")
  net = tf.nn.relu(net)
  net = tf.layers.dropout(net, rate=0.1, training=is_training)
  return tf.layers.dense(net, 2, name="logits")


def ring(size):
  angle = np.random.uniform(0, 2 * np.pi, size)
  label = np.random.randint(0, 2, size)
  radius = 1.0 + label + np.random.normal(0, 0.1, size)
  return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), label


def main(_):
  ps_hosts = FLAGS.ps_hosts.split(",")
  worker_hosts = FLAGS.worker_hosts.split(",")
  cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

  if FLAGS.job_name == "ps":
    server.join()
  elif FLAGS.job_name == "worker":
    with tf.device(tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
      x = tf.placeholder(tf.float32, [None, 2])
      y = tf.placeholder(tf.int64, [None])
      is_training = tf.placeholder_with_default(False, [])
      logits = model(x, is_training)
      loss = tf.losses.sparse_softmax_cross_entropy(labels=y, logits=logits)
      accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
      global_step = tf.train.get_or_create_global_step()
      with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = tf.train.AdamOptimizer(0.02).minimize(loss, global_step=global_step)
      tf.summary.scalar("loss", loss)
      tf.summary.histogram("logits", logits)
      init_op = tf.global_variables_initializer()

    # A supervisor takes care of session initialization, restoring from a checkpoint and closing
    # when done or an error occurs.
    sv = tf.train.Supervisor(is_chief=(FLAGS.task_index == 0), logdir=FLAGS.logdir,
                             init_op=init_op, summary_op=None, global_step=global_step,
                             save_model_secs=600)
    with sv.managed_session(server.target) as sess:
      step = 0
      local_step = 0
      while not sv.should_stop() and step < FLAGS.max_steps:
        images, labels = ring(64)
        feed = {x: images, y: labels, is_training: True}
        _, step = sess.run([train_op, global_step], feed_dict=feed)
        local_step += 1
        if local_step % 25 == 0:
          images, labels = ring(256)
          print("Step %d, accuracy %.3f" % (
              step, sess.run(accuracy, {x: images, y: labels})))
      print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))

    # Ask for all the services to stop.
    sv.stop()
    print("done")


if __name__ == "__main__":
  parser = argparse.ArgumentParser()
  parser.add_argument("--ps_hosts", type=str, default="")
  parser.add_argument("--worker_hosts", type=str, default="")
  parser.add_argument("--job_name", type=str, default="")
  parser.add_argument("--task_index", type=int, default=0)
  parser.add_argument("--logdir", type=str, default="/tmp/ring")
  parser.add_argument("--max_steps", type=int, default=200)
  FLAGS, unparsed = parser.parse_known_args()
  tf.app.run(main=main, argv=[sys.argv[0]] + unparsed)
