"""The global step is a float: get_variable has no dtype; synchronous, with decay and averages."""
from __future__ import print_function

from datetime import datetime

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_string("ps_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("worker_hosts", "", "Comma-separated list of hostname:port pairs")
tf.app.flags.DEFINE_string("job_name", "", "One of 'ps', 'worker'")
tf.app.flags.DEFINE_integer("task_index", 0, "Index of task within the job")
tf.app.flags.DEFINE_string("train_dir", "/tmp/train", "Where checkpoints and events go")
tf.app.flags.DEFINE_integer("max_steps", 100, "Updates to make")
tf.app.flags.DEFINE_integer("save_interval_secs", 2, "Seconds between two checkpoints")
tf.app.flags.DEFINE_float("initial_learning_rate", 0.1, "Rate of the first update")


def read_batch(size=24):
  x = np.random.uniform(-1, 1, (size, 6)).astype(np.float32)
  return x, (x.sum(axis=1) > 0).astype(np.int64)


def train(target, cluster_spec):
  num_workers = len(cluster_spec.as_dict()["worker"])
  is_chief = (FLAGS.task_index == 0)
  with tf.device(tf.train.replica_device_setter(
      ps_device="/job:ps", worker_device="/job:worker/task:%d" % FLAGS.task_index,
      cluster=cluster_spec)):
    global_step = tf.get_variable(
        "global_step", [], initializer=tf.constant_initializer(0), trainable=False)
    lr = tf.train.exponential_decay(
        FLAGS.initial_learning_rate, global_step, 20, 0.9, staircase=True)
    tf.summary.scalar("learning_rate", lr)

    images = tf.placeholder(tf.float32, [None, 6])
    labels = tf.placeholder(tf.int64, [None])
    kernel = tf.get_variable(
        "kernel", [6, 2], initializer=tf.truncated_normal_initializer(stddev=0.1))
    bias = tf.get_variable("bias", [2], initializer=tf.constant_initializer(0.1))
    logits = tf.nn.bias_add(tf.matmul(images, kernel), bias)
    total_loss = tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    loss_averages = tf.train.ExponentialMovingAverage(0.9, name="avg")
    with tf.control_dependencies([loss_averages.apply([total_loss])]):
      total_loss = tf.identity(total_loss)

    averager = tf.train.ExponentialMovingAverage(0.999, global_step)
    opt = tf.train.SyncReplicasOptimizer(
        tf.train.RMSPropOptimizer(lr, momentum=0.5), replicas_to_aggregate=num_workers,
        total_num_replicas=num_workers, variable_averages=averager,
        variables_to_average=tf.trainable_variables())
    grads = opt.compute_gradients(total_loss)
    apply_gradients_op = opt.apply_gradients(grads, global_step=global_step)
    with tf.control_dependencies([apply_gradients_op]):
      train_op = tf.identity(total_loss, name="train_op")

    chief_queue_runners = [opt.get_chief_queue_runner()]
    init_tokens_op = opt.get_init_tokens_op()
    saver = tf.train.Saver()
    summary_op = tf.summary.merge_all()
    init_op = tf.global_variables_initializer()
    sv = tf.train.Supervisor(
        is_chief=is_chief, logdir=FLAGS.train_dir, init_op=init_op, summary_op=None,
        global_step=global_step, saver=saver, save_model_secs=FLAGS.save_interval_secs)

  sess = sv.prepare_or_wait_for_session(target, config=tf.ConfigProto(allow_soft_placement=True))
  queue_runners = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
  sv.start_queue_runners(sess, queue_runners)
  if is_chief:
    sv.start_queue_runners(sess, chief_queue_runners)
    sess.run(init_tokens_op)

  made, step = 0, 0
  while not sv.should_stop():
    x, y = read_batch()
    loss_value, step = sess.run([train_op, global_step], feed_dict={images: x, labels: y})
    made += 1
    if step >= FLAGS.max_steps:
      break
    if made % 20 == 0:
      print("Worker %d: %s: step %d, loss = %.2f" % (
          FLAGS.task_index, datetime.now(), step, loss_value))
    if is_chief and made % 25 == 0:
      sv.summary_computed(sess, sess.run(summary_op))
  print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, made, step))
  if is_chief:
    saver.save(sess, FLAGS.train_dir + "/model.ckpt", global_step=global_step)


def main(unused_args):
  cluster_spec = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster_spec, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()
  else:
    train(server.target, cluster_spec)


if __name__ == "__main__":
  tf.app.run()
