"""Synchronous training as of TensorFlow 0.12: every name here is gone, or is called otherwise."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

tf.app.flags.DEFINE_string("ps_hosts", "", "ps hosts")
tf.app.flags.DEFINE_string("worker_hosts", "", "worker hosts")
tf.app.flags.DEFINE_string("job_name", "", "ps or worker")
tf.app.flags.DEFINE_integer("task_index", 0, "index of the task")
tf.app.flags.DEFINE_string("log_dir", "/tmp/before_1_0", "directory of the model")
tf.app.flags.DEFINE_integer("max_steps", 100, "number of updates")
FLAGS = tf.app.flags.FLAGS


def inference(x):
  with tf.variable_scope("hidden"):
    w = tf.get_variable("w", [6, 8], initializer=tf.truncated_normal_initializer(stddev=0.3))
    b = tf.get_variable("b", [8], initializer=tf.constant_initializer(0.1))
    first, second = tf.split(1, 2, tf.nn.relu(tf.add(tf.matmul(x, w), b)))
    hidden = tf.concat(1, [first, tf.neg(second)])
  with tf.variable_scope("out"):
    w = tf.get_variable("w", [8, 1], initializer=tf.truncated_normal_initializer(stddev=0.3))
    return tf.matmul(hidden, w)


def main(_):
  worker_hosts = FLAGS.worker_hosts.split(",")
  num_workers = len(worker_hosts)
  cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": worker_hosts})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()

  is_chief = (FLAGS.task_index == 0)
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
    global_step = tf.Variable(0, trainable=False, name="global_step")
    x = tf.placeholder(tf.float32, [None, 6])
    y = tf.placeholder(tf.float32, [None, 1])
    error = tf.sub(inference(x), y)
    loss = tf.reduce_mean(tf.mul(error, error))
    tf.scalar_summary("loss", loss)
    for variable in tf.trainable_variables():
      tf.histogram_summary(variable.op.name, variable)
    summary_op = tf.merge_all_summaries()

    opt = tf.train.SyncReplicasOptimizer(
        tf.train.AdamOptimizer(0.02), replicas_to_aggregate=num_workers,
        replica_id=FLAGS.task_index, total_num_replicas=num_workers, name="sync_replicas")
    train_op = opt.minimize(loss, global_step=global_step)
    if is_chief:
      chief_queue_runner = opt.get_chief_queue_runner()
      init_tokens_op = opt.get_init_tokens_op()
    init_op = tf.initialize_all_variables()
    saver = tf.train.Saver(tf.all_variables())

  sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.log_dir, init_op=init_op,
                           summary_op=None, saver=saver, global_step=global_step,
                           recovery_wait_secs=1, save_model_secs=60)
  sess = sv.prepare_or_wait_for_session(server.target)
  if is_chief:
    sv.start_queue_runners(sess, [chief_queue_runner])
    sess.run(init_tokens_op)
    writer = tf.train.SummaryWriter(FLAGS.log_dir, sess.graph)

  rng = np.random.RandomState(FLAGS.task_index)
  local_step = step = 0
  while not sv.should_stop():
    data = rng.normal(size=(32, 6))
    feed = {x: data, y: data.sum(axis=1, keepdims=True)}
    _, value, step = sess.run([train_op, loss, global_step], feed_dict=feed)
    local_step += 1
    if is_chief and local_step % 20 == 0:
      writer.add_summary(sess.run(summary_op, feed), step)
      print("step %d, loss %f" % (step, value))
    if step >= FLAGS.max_steps:
      break
  print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))
  print("done")


if __name__ == "__main__":
  tf.app.run()
