"""Softmax regression with tf.train.Supervisor; each worker updates the weights when it is ready."""
from __future__ import absolute_import, division, print_function

import time

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "localhost:2222", "Comma-separated list of hostname:port pairs")
flags.DEFINE_string("worker_hosts", "localhost:2223,localhost:2224", "Same for the workers")
flags.DEFINE_string("job_name", None, "job name: worker or ps")
flags.DEFINE_integer("task_index", None, "Worker task index, should be >= 0")
flags.DEFINE_string("train_dir", "/tmp/train_logs", "Directory for checkpoints and summaries")
flags.DEFINE_integer("train_steps", 200, "Number of (global) training steps to perform")
flags.DEFINE_integer("batch_size", 32, "Training batch size")
flags.DEFINE_integer("save_secs", 600, "Seconds between two checkpoints")
flags.DEFINE_float("learning_rate", 0.2, "Learning rate")
FLAGS = flags.FLAGS

NUM_FEATURES = 10
NUM_CLASSES = 3


def next_batch(rng, centers, size):
  labels = rng.randint(NUM_CLASSES, size=size)
  images = centers[labels] + rng.normal(scale=0.3, size=(size, NUM_FEATURES))
  return images, np.eye(NUM_CLASSES)[labels]


def main(unused_argv):
  if FLAGS.job_name is None or FLAGS.job_name == "":
    raise ValueError("Must specify an explicit `job_name`")
  print("job name = %s" % FLAGS.job_name)
  print("task index = %d" % FLAGS.task_index)

  cluster = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()

  is_chief = (FLAGS.task_index == 0)
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
    global_step = tf.Variable(0, name="global_step", trainable=False)
    x = tf.placeholder(tf.float32, [None, NUM_FEATURES], name="x-input")
    y_ = tf.placeholder(tf.float32, [None, NUM_CLASSES], name="y-input")
    weights = tf.Variable(tf.zeros([NUM_FEATURES, NUM_CLASSES]), name="W")
    biases = tf.Variable(tf.zeros([NUM_CLASSES]), name="b")
    y = tf.nn.softmax(tf.matmul(x, weights) + biases)
    cross_entropy = -tf.reduce_sum(y_ * tf.log(tf.clip_by_value(y, 1e-10, 1.0)))
    opt = tf.train.GradientDescentOptimizer(FLAGS.learning_rate / FLAGS.batch_size)
    train_step = opt.minimize(cross_entropy, global_step=global_step)
    saver = tf.train.Saver()
    init_op = tf.global_variables_initializer()

  sv = tf.train.Supervisor(
      is_chief=is_chief, logdir=FLAGS.train_dir, init_op=init_op, summary_op=None,
      saver=saver, global_step=global_step, recovery_wait_secs=1, save_model_secs=FLAGS.save_secs)
  if is_chief:
    print("Worker %d: Initializing session..." % FLAGS.task_index)
  else:
    print("Worker %d: Waiting for session to be initialized..." % FLAGS.task_index)
  sess_config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
  sess = sv.prepare_or_wait_for_session(server.target, config=sess_config)
  print("Worker %d: Session initialization complete." % FLAGS.task_index)

  rng = np.random.RandomState(FLAGS.task_index)
  centers = np.random.RandomState(7).normal(size=(NUM_CLASSES, NUM_FEATURES))
  time_begin = time.time()
  local_step = 0
  step = 0
  while not sv.should_stop() and step < FLAGS.train_steps:
    batch_xs, batch_ys = next_batch(rng, centers, FLAGS.batch_size)
    _, loss, step = sess.run([train_step, cross_entropy, global_step],
                             feed_dict={x: batch_xs, y_: batch_ys})
    local_step += 1
    if local_step % 20 == 0:
      print("Worker %d: training step %d done (global step: %d), loss %f"
            % (FLAGS.task_index, local_step, step, loss))
  print("Training elapsed time: %f s" % (time.time() - time_begin))
  print("Worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))

  sv.stop()


if __name__ == "__main__":
  tf.app.run()
