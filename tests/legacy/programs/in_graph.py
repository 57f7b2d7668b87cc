"""One client, the first worker's process, drives all workers from one graph: the others serve."""
from __future__ import print_function

import argparse

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", type=str)
parser.add_argument("--worker_hosts", type=str)
parser.add_argument("--job_name", type=str)
parser.add_argument("--task_index", type=int)
parser.add_argument("--steps", type=int, default=100)
args = parser.parse_args()


def average_gradients(tower_grads):
  average_grads = []
  for grad_and_vars in zip(*tower_grads):
    grads = [tf.expand_dims(g, 0) for g, _ in grad_and_vars]
    grad = tf.reduce_mean(tf.concat(axis=0, values=grads), 0)
    average_grads.append((grad, grad_and_vars[0][1]))
  return average_grads


ps_hosts = args.ps_hosts.split(",")
worker_hosts = args.worker_hosts.split(",")
cluster = tf.train.ClusterSpec({"ps": ps_hosts, "worker": worker_hosts})
server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index)

if args.job_name == "ps" or args.task_index > 0:
  server.join()
else:
  x = tf.placeholder(tf.float32, [None, 5])
  y = tf.placeholder(tf.float32, [None])
  with tf.device("/job:ps/task:0"):
    w = tf.get_variable("w", [5, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    global_step = tf.train.get_or_create_global_step()

  opt = tf.train.GradientDescentOptimizer(0.1)
  xs = tf.split(x, len(worker_hosts))
  ys = tf.split(y, len(worker_hosts))
  tower_grads = []
  tower_losses = []
  for i in range(len(worker_hosts)):
    with tf.device("/job:worker/task:%d" % i):
      with tf.name_scope("tower_%d" % i):
        loss = tf.reduce_mean(tf.square(tf.squeeze(tf.matmul(xs[i], w), 1) + b - ys[i]))
        tower_losses.append(loss)
        tower_grads.append(opt.compute_gradients(loss, [w, b]))
  with tf.device("/job:ps/task:0"):
    train_op = opt.apply_gradients(average_gradients(tower_grads), global_step=global_step)
    mean_loss = tf.add_n(tower_losses) / len(worker_hosts)

  with tf.Session(server.target, config=tf.ConfigProto(allow_soft_placement=True)) as sess:
    sess.run(tf.global_variables_initializer())
    for step in range(args.steps):
      data = np.random.uniform(-1, 1, (32, 5))
      _, value = sess.run([train_op, mean_loss],
                          feed_dict={x: data, y: np.sum(data, 1) + 0.5})
      if (step + 1) % 20 == 0:
        print("step %d, loss %f" % (step + 1, value))
    print("worker %d: %d local steps, global step %d" % (
        args.task_index, args.steps, sess.run(global_step)))
  print("done")
