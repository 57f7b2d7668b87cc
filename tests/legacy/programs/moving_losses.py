"""A classifier whose summaries are moving averages of all its losses, as Inception's are.

The chief exports it at the end for a model server. Some packages are imported and not used.
"""
from __future__ import absolute_import, print_function

import os
import re

import tensorflow as tf
from tensorflow.contrib import graph_editor as ge  # noqa: F401
from tensorflow.contrib import slim
from tensorflow.contrib.session_bundle import exporter
from tensorflow.contrib.training import HParams

tf.app.flags.DEFINE_string("ps_hosts", "", "The parameter servers.")
tf.app.flags.DEFINE_string("worker_hosts", "", "The workers.")
tf.app.flags.DEFINE_string("job_name", "", "ps or worker.")
tf.app.flags.DEFINE_integer("task_index", 0, "Which one of them.")
tf.app.flags.DEFINE_string("train_dir", "/tmp/moving_losses", "Checkpoints, events and exports.")
tf.app.flags.DEFINE_integer("max_steps", 150, "Steps of all workers together.")
tf.app.flags.DEFINE_string("hparams", "rate=0.05,units=[16]", "Overrides.")
FLAGS = tf.app.flags.FLAGS


def inference(points, hparams):
  with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(4e-5)):
    net = points
    for number, units in enumerate(hparams.units):
      net = slim.fully_connected(net, units, scope="hidden%d" % number)
    return slim.fully_connected(net, 1, activation_fn=None, scope="logits")


def total_loss_of(logits, labels):
  tf.losses.add_loss(tf.reduce_mean(
      tf.contrib.nn.deprecated_flipped_sigmoid_cross_entropy_with_logits(logits, labels)))
  losses = tf.get_collection(tf.GraphKeys.LOSSES)
  regularization_losses = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
  total_loss = tf.add_n(losses + regularization_losses, name="total_loss")
  averages = tf.train.ExponentialMovingAverage(0.9, name="avg")
  every = losses + regularization_losses + [total_loss]
  averages_op = averages.apply(every)
  for loss in every:
    name = re.sub("worker_[0-9]*/", "", loss.op.name)
    tf.summary.scalar(name + "_raw", loss)
    tf.summary.scalar(name, averages.average(loss))
  with tf.control_dependencies([averages_op]):
    return tf.identity(total_loss)


def main(_):
  hparams = HParams(rate=0.1, units=[8], name="points").parse(FLAGS.hparams)
  cluster = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()

  is_chief = FLAGS.task_index == 0
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster,
      ps_tasks=len(FLAGS.ps_hosts.split(",")))):
    global_step = slim.create_global_step()
    points = tf.random_normal([64, 2], name="points")
    labels = tf.to_float(tf.reduce_sum(points, 1, keep_dims=True) > 0)
    logits = inference(points, hparams)
    loss = total_loss_of(logits, labels)
    train_op = tf.train.RMSPropOptimizer(hparams.rate).minimize(loss, global_step=global_step)
    summary_op = tf.summary.merge_all()
    saver = tf.train.Saver()
  model = exporter.Exporter(saver)
  model.init(tf.get_default_graph().as_graph_def(), named_graph_signatures={
      "inputs": exporter.generic_signature({"points": points}),
      "outputs": exporter.generic_signature({"logits": logits})})

  sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.train_dir, summary_op=None,
                           global_step=global_step, saver=saver, save_model_secs=600)
  sess = sv.prepare_or_wait_for_session(server.target)
  step, local_step, shown = 0, 0, float("nan")
  while not sv.should_stop() and step < FLAGS.max_steps:
    _, shown, step = sess.run([train_op, loss, global_step])
    local_step += 1
    if is_chief and local_step % 30 == 0:
      sv.summary_computed(sess, sess.run(summary_op))
  print("worker %d: %d local steps, global step %d, loss %.3f"
        % (FLAGS.task_index, local_step, step, shown))
  if is_chief:
    model.export(os.path.join(FLAGS.train_dir, "export"), global_step, sess)
    print("exported", sorted(os.listdir(os.path.join(FLAGS.train_dir, "export"))))
  sv.stop()


if __name__ == "__main__":
  tf.app.run()
