"""Training by a Supervisor, and beside it an evaluator that follows the checkpoints."""
from __future__ import print_function

import time

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "ps hosts")
flags.DEFINE_string("worker_hosts", "", "worker hosts")
flags.DEFINE_string("job_name", "", "ps, worker or eval")
flags.DEFINE_integer("task_index", 0, "index of the task")
flags.DEFINE_string("logdir", "/tmp/evaluator", "where checkpoints are")
flags.DEFINE_integer("max_steps", 200, "global steps to train")
flags.DEFINE_integer("eval_interval_secs", 1, "How often to look for a checkpoint.")
flags.DEFINE_integer("eval_patience_secs", 60, "Ends when none has come for so long.")
FLAGS = flags.FLAGS


def build_model():
  x = tf.placeholder(tf.float32, [None, 4], name="x")
  y = tf.placeholder(tf.float32, [None, 1], name="y")
  w = tf.get_variable("w", [4, 1], initializer=tf.random_normal_initializer(stddev=0.1))
  logits = tf.matmul(x, w)
  loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=logits))
  correct = tf.equal(tf.greater(logits, 0.0), tf.greater(y, 0.5))
  return x, y, loss, tf.reduce_mean(tf.to_float(correct))


def next_batch(size):
  data = np.random.normal(size=(size, 4))
  return data, (data.sum(axis=1, keepdims=True) > 0).astype("f")


def train(server, cluster):
  is_chief = FLAGS.task_index == 0
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
    x, y, loss, _ = build_model()
    global_step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)
  sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.logdir, global_step=global_step,
                           summary_op=None, save_model_secs=1)
  sess = sv.prepare_or_wait_for_session(server.target)
  local_step = step = 0
  while not sv.should_stop() and step < FLAGS.max_steps:
    data, labels = next_batch(16)
    _, step = sess.run([train_op, global_step], {x: data, y: labels})
    local_step += 1
  print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))
  sv.stop()
  print("done")


def evaluate():
  x, y, _, accuracy = build_model()
  tf.train.get_or_create_global_step()
  saver = tf.train.Saver()
  writer = tf.summary.FileWriter(FLAGS.logdir + "/eval")
  last_step, last_seen = -1, time.time()
  while last_step < FLAGS.max_steps and time.time() - last_seen < FLAGS.eval_patience_secs:
    ckpt = tf.train.get_checkpoint_state(FLAGS.logdir)
    step = -1
    if ckpt and ckpt.model_checkpoint_path:
      step = int(ckpt.model_checkpoint_path.split("/")[-1].split("-")[-1])
    if step > last_step:
      with tf.Session() as sess:
        saver.restore(sess, ckpt.model_checkpoint_path)
        data, labels = next_batch(500)
        value = sess.run(accuracy, {x: data, y: labels})
      summary = tf.Summary(value=[tf.Summary.Value(tag="accuracy", simple_value=value)])
      writer.add_summary(summary, step)
      print("evaluated step %d: accuracy %.3f" % (step, value))
      last_step, last_seen = step, time.time()
    time.sleep(FLAGS.eval_interval_secs)
  writer.close()


def main(_):
  if FLAGS.job_name == "eval":
    evaluate()
    return
  cluster = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()
  else:
    train(server, cluster)


if __name__ == "__main__":
  tf.app.run()
