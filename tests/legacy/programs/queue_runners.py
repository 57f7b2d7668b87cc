"""Files of numbers, read by queue runners that a Supervisor starts; it ends when they are read."""
from __future__ import print_function

import os

import numpy as np
import tensorflow as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("ps_hosts", "", "ps hosts")
flags.DEFINE_string("worker_hosts", "", "worker hosts")
flags.DEFINE_string("job_name", "", "'ps' or 'worker'")
flags.DEFINE_integer("task_index", 0, "index of the task")
flags.DEFINE_string("train_dir", "", "where the model and this worker's data go")
flags.DEFINE_integer("num_epochs", 4, "how often the files are read")
flags.DEFINE_integer("batch_size", 10, "rows in a step")

ROWS = 100


def write_files():
  """Two files, of 100 rows x, y with y = 3 x - 1."""
  names = []
  for part in range(2):
    name = os.path.join(FLAGS.train_dir, "data-%d-%d.csv" % (FLAGS.task_index, part))
    numbers = np.random.RandomState(part).uniform(-1, 1, ROWS)
    with open(name, "w") as f:
      for number in numbers:
        f.write("%.6f,%.6f\n" % (number, 3 * number - 1))
    names.append(name)
  return names


def inputs(names):
  queue = tf.train.string_input_producer(names, num_epochs=FLAGS.num_epochs, shuffle=True)
  reader = tf.TextLineReader()
  _, line = reader.read(queue)
  x, y = tf.decode_csv(line, record_defaults=[[0.0], [0.0]])
  return tf.train.shuffle_batch(
      [x, y], batch_size=FLAGS.batch_size, num_threads=2, capacity=120, min_after_dequeue=40,
      allow_smaller_final_batch=True)


def main(argv=None):
  ps_spec = FLAGS.ps_hosts.split(",")
  worker_spec = FLAGS.worker_hosts.split(",")
  cluster = tf.train.ClusterSpec({"ps": ps_spec, "worker": worker_spec})
  server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
  if FLAGS.job_name == "ps":
    server.join()
    return

  if not os.path.isdir(FLAGS.train_dir):
    os.makedirs(FLAGS.train_dir)
  names = write_files()
  is_chief = (FLAGS.task_index == 0)
  device_setter = tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, ps_device="/job:ps",
      cluster=cluster)
  with tf.device(device_setter):
    with tf.device("/job:worker/task:%d/cpu:0" % FLAGS.task_index):
      x, y = inputs(names)
    w = tf.Variable(0.0, name="w")
    b = tf.Variable(0.0, name="b")
    cost = tf.reduce_mean(tf.square(w * x + b - y))
    global_step = tf.Variable(0, name="global_step", trainable=False)
    train_op = tf.train.MomentumOptimizer(0.1, 0.5).minimize(cost, global_step=global_step)
    tf.summary.scalar("w", w)

  sv = tf.train.Supervisor(is_chief=is_chief, logdir=FLAGS.train_dir, global_step=global_step,
                           summary_op=tf.summary.merge_all(), save_summaries_secs=1)
  local_step, rows, step, value = 0, 0, 0, 0.0
  with sv.managed_session(server.target) as sess:
    threads = tf.train.start_queue_runners(sess=sess, coord=sv.coord)
    try:
      while not sv.should_stop():
        _, batch, step, value = sess.run([train_op, x, global_step, cost])
        local_step += 1
        rows += len(batch)
    except tf.errors.OutOfRangeError:
      print("Done training for %d epochs" % FLAGS.num_epochs)
    finally:
      sv.request_stop()
    sv.coord.join(threads, stop_grace_period_secs=5)
  print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))
  print("worker %d: %d rows, cost %f" % (FLAGS.task_index, rows, value))


if __name__ == "__main__":
  tf.app.run()
