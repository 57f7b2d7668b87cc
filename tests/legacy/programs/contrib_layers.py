"""Digits by tf.contrib.layers; hyperparameters come as one string, pictures from the tutorials."""
from __future__ import print_function

import tensorflow as tf
from tensorflow.contrib import layers
from tensorflow.contrib.framework import get_or_create_global_step
from tensorflow.examples.tutorials.mnist import input_data

flags = tf.app.flags
flags.DEFINE_string("data_dir", "MNIST_data/", "Directory with the MNIST data")
flags.DEFINE_string("model_dir", "/tmp/contrib_layers", "Directory of the model")
flags.DEFINE_string("hparams", "", "Comma-separated name=value pairs")
flags.DEFINE_string("ps_hosts", "", "ps hosts")
flags.DEFINE_string("worker_hosts", "", "worker hosts")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "index of the task")
FLAGS = flags.FLAGS


def create_hparams():
  hparams = tf.contrib.training.HParams(
      learning_rate=0.5, hidden=20, batch_size=50, train_steps=150, weight_decay=1e-4)
  hparams.parse(FLAGS.hparams)
  return hparams


def build_model(images, labels, hparams):
  with tf.contrib.framework.arg_scope(
      [layers.fully_connected],
      weights_initializer=layers.xavier_initializer(),
      weights_regularizer=layers.l2_regularizer(hparams.weight_decay)):
    net = layers.fully_connected(images, hparams.hidden, scope="fc1")
    logits = layers.fully_connected(net, 10, activation_fn=None, scope="fc2")
  loss = tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=labels, logits=logits))
  loss += tf.add_n(tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES))
  correct = tf.equal(tf.argmax(logits, 1), tf.argmax(labels, 1))
  return loss, tf.reduce_mean(tf.cast(correct, tf.float32))


def main(_):
  hparams = create_hparams()
  cluster_spec = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(
      cluster_spec, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()

  mnist = input_data.read_data_sets(FLAGS.data_dir, one_hot=True)
  strategy = tf.contrib.training.GreedyLoadBalancingStrategy(
      cluster_spec.num_tasks("ps"), tf.contrib.training.byte_size_load_fn)
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster_spec,
      ps_strategy=strategy)):
    images = tf.placeholder(tf.float32, [None, 784])
    labels = tf.placeholder(tf.float32, [None, 10])
    loss, accuracy = build_model(images, labels, hparams)
    global_step = get_or_create_global_step()
    train_op = tf.train.GradientDescentOptimizer(hparams.learning_rate).minimize(
        loss, global_step=global_step)

  hooks = [tf.train.StopAtStepHook(last_step=hparams.train_steps)]
  local_step = step = 0
  with tf.train.MonitoredTrainingSession(
      master=server.target, is_chief=(FLAGS.task_index == 0), checkpoint_dir=FLAGS.model_dir,
      hooks=hooks) as mon_sess:
    while not mon_sess.should_stop():
      batch_x, batch_y = mnist.train.next_batch(hparams.batch_size)
      _, value, step = mon_sess.run([train_op, loss, global_step],
                                    feed_dict={images: batch_x, labels: batch_y})
      local_step += 1
      if local_step % 25 == 0:
        print("step %d, loss %.4f" % (step, value))
  print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))


if __name__ == "__main__":
  tf.app.run()
