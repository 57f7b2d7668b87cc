"""A ps that ends: each worker puts a token into a queue of each ps when it is done."""
from __future__ import print_function

import numpy as np
import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "")
flags.DEFINE_string("worker_hosts", "", "")
flags.DEFINE_string("job_name", "worker", "")
flags.DEFINE_integer("task_index", 0, "")
flags.DEFINE_string("model_dir", "model", "")
flags.DEFINE_integer("max_steps", 150, "")
FLAGS = flags.FLAGS


def done_queue(ps_index, num_workers):
  """The queue of one ps, into which its workers say that they are done."""
  with tf.device("/job:ps/task:%d" % ps_index):
    return tf.FIFOQueue(num_workers, tf.int32, shared_name="done_queue%d" % ps_index)


def serve(server, num_workers):
  sess = tf.Session(server.target)
  queue = done_queue(FLAGS.task_index, num_workers)
  dequeue = queue.dequeue()
  for i in range(num_workers):
    worker = sess.run(dequeue)
    print("ps %d: worker %d is done (%d of %d)" % (FLAGS.task_index, worker, i + 1, num_workers))
  print("ps %d: quitting" % FLAGS.task_index)


def train(server, cluster, num_ps, num_workers):
  with tf.device(tf.train.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable("w", [4, 1], initializer=tf.truncated_normal_initializer(stddev=0.1))
    b = tf.get_variable("b", [1], initializer=tf.constant_initializer(0.0))
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - y))
    global_step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdagradOptimizer(0.5).minimize(loss, global_step=global_step)
  done_ops = [done_queue(i, num_workers).enqueue(FLAGS.task_index) for i in range(num_ps)]

  hooks = [tf.train.StopAtStepHook(last_step=FLAGS.max_steps), tf.train.FinalOpsHook(done_ops)]
  target = np.array([[1.0], [-2.0], [3.0], [0.5]])
  local_step = 0
  step = 0
  with tf.train.MonitoredTrainingSession(
      master=server.target, is_chief=(FLAGS.task_index == 0), checkpoint_dir=FLAGS.model_dir,
      hooks=hooks, save_summaries_steps=50) as sess:
    while not sess.should_stop():
      data = np.random.normal(size=(32, 4))
      _, value, step = sess.run([train_op, loss, global_step],
                                feed_dict={x: data, y: np.dot(data, target) + 1.0})
      local_step += 1
      if local_step % 25 == 0:
        print("worker %d: global step %d, loss %.5f" % (FLAGS.task_index, step, value))
  print("worker %d: %d local steps, global step %d" % (FLAGS.task_index, local_step, step))


def main(_):
  cluster = tf.train.ClusterSpec({
      "ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
  server = tf.train.Server(cluster, FLAGS.job_name, FLAGS.task_index)
  if FLAGS.job_name == "ps":
    serve(server, cluster.num_tasks("worker"))
  else:
    train(server, cluster, cluster.num_tasks("ps"), cluster.num_tasks("worker"))


if __name__ == "__main__":
  tf.app.run()
