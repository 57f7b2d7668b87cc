"""A small network of slim's, trained by slim.learning.train."""
from __future__ import absolute_import, print_function

import tensorflow as tf
from tensorflow.contrib import slim

tf.app.flags.DEFINE_string("master", "", "The address of the TensorFlow master; not used here.")
tf.app.flags.DEFINE_string("train_dir", "/tmp/tfmodel/", "Directory for checkpoints and events.")
tf.app.flags.DEFINE_string("ps_hosts", "", "The parameter servers.")
tf.app.flags.DEFINE_string("worker_hosts", "", "The workers.")
tf.app.flags.DEFINE_string("job_name", "worker", "ps or worker.")
tf.app.flags.DEFINE_integer("task_index", 0, "The task id of the replica running the training.")
tf.app.flags.DEFINE_integer("log_every_n_steps", 20, "The frequency with which logs are printed.")
tf.app.flags.DEFINE_integer("save_interval_secs", 600, "Seconds between checkpoints.")
tf.app.flags.DEFINE_integer("max_number_of_steps", 150, "The maximum number of training steps.")
tf.app.flags.DEFINE_float("weight_decay", 0.00004, "The weight decay on the model weights.")
FLAGS = tf.app.flags.FLAGS


def network(images, is_training=True):
  with slim.arg_scope([slim.conv2d, slim.fully_connected],
                      activation_fn=tf.nn.relu,
                      weights_regularizer=slim.l2_regularizer(FLAGS.weight_decay)):
    net = slim.conv2d(images, 4, [3, 3], scope="conv1")
    net = slim.max_pool2d(net, [2, 2], scope="pool1")
    net = slim.flatten(net)
    net = slim.dropout(net, 0.9, is_training=is_training, scope="dropout1")
    return slim.fully_connected(net, 2, activation_fn=None, scope="logits")


def generated_batch(size=32):
  """8x8 pictures of noise; those of class 1 have a bright upper half."""
  labels = tf.random_uniform([size], maxval=2, dtype=tf.int32)
  upper = tf.concat([tf.ones([1, 4, 8, 1]), tf.zeros([1, 4, 8, 1])], axis=1)
  images = tf.random_normal([size, 8, 8, 1], stddev=0.3)
  images += upper * tf.reshape(tf.to_float(labels), [size, 1, 1, 1])
  return images, slim.one_hot_encoding(labels, 2)


def main(_):
  tf.logging.set_verbosity(tf.logging.INFO)
  cluster = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()
    return

  with tf.Graph().as_default():
    with tf.device(tf.train.replica_device_setter(
        worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
      global_step = slim.create_global_step()
      images, labels = generated_batch()
      logits = network(images)
      slim.losses.softmax_cross_entropy(logits, labels)
      total_loss = slim.losses.get_total_loss()
      tf.summary.scalar("losses/total_loss", total_loss)
      optimizer = tf.train.RMSPropOptimizer(0.01, decay=0.9, momentum=0.0, epsilon=1.0)
      train_op = slim.learning.create_train_op(total_loss, optimizer, global_step=global_step)

    final_loss = slim.learning.train(
        train_op,
        logdir=FLAGS.train_dir,
        master=server.target,
        is_chief=(FLAGS.task_index == 0),
        number_of_steps=FLAGS.max_number_of_steps,
        log_every_n_steps=FLAGS.log_every_n_steps,
        save_summaries_secs=60,
        save_interval_secs=FLAGS.save_interval_secs)
    print("worker %d: final loss %s" % (FLAGS.task_index, final_loss))


if __name__ == "__main__":
  tf.app.run()
