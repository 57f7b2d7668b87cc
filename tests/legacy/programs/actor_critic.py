"""An actor-critic agent: a thread plays with the worker's copy of the network. The ps sleeps."""
from __future__ import print_function

import argparse
import signal
import sys
import threading
import time

import numpy as np
import tensorflow as tf

try:
  import queue
except ImportError:
  import Queue as queue

PLACES = 5  # in a row; the right end pays 1


class FastSaver(tf.train.Saver):
  """Leaves out the meta graph, which takes long."""

  def save(self, sess, save_path, global_step=None, latest_filename=None,
           meta_graph_suffix="meta", write_meta_graph=True):
    super(FastSaver, self).save(sess, save_path, global_step, latest_filename,
                                meta_graph_suffix, False)


class Policy(object):

  def __init__(self):
    self.x = tf.placeholder(tf.float32, [None, PLACES])
    w = tf.get_variable("w", [PLACES, 8], initializer=tf.random_normal_initializer(stddev=0.1))
    hidden = tf.nn.elu(tf.matmul(self.x, w))
    self.logits = tf.matmul(hidden, tf.get_variable("action", [8, 2]))
    self.value = tf.matmul(hidden, tf.get_variable("value", [8, 1]))[:, 0]
    self.sample = tf.multinomial(self.logits, 1)[0, 0]
    self.var_list = tf.get_collection(
        tf.GraphKeys.TRAINABLE_VARIABLES, tf.get_variable_scope().name)


class A3C(object):

  def __init__(self, task):
    worker_device = "/job:worker/task:{}/cpu:0".format(task)
    with tf.device(tf.train.replica_device_setter(1, worker_device=worker_device)):
      with tf.variable_scope("global"):
        self.network = Policy()
        self.global_step = tf.get_variable(
            "global_step", [], tf.int32, initializer=tf.constant_initializer(0, dtype=tf.int32),
            trainable=False)
    with tf.device(worker_device):
      with tf.variable_scope("local"):
        self.local = Policy()
      self.action = tf.placeholder(tf.int32, [None])
      self.reward = tf.placeholder(tf.float32, [None])
      log_prob = -tf.nn.sparse_softmax_cross_entropy_with_logits(
          labels=self.action, logits=self.local.logits)
      advantage = tf.stop_gradient(self.reward - self.local.value)
      loss = (-tf.reduce_sum(log_prob * advantage)
              + 0.5 * tf.reduce_sum(tf.square(self.local.value - self.reward)))
      grads, _ = tf.clip_by_global_norm(tf.gradients(loss, self.local.var_list), 40.0)
      self.sync = tf.group(
          *[mine.assign(its) for mine, its in zip(self.local.var_list, self.network.var_list)])
      inc_step = self.global_step.assign_add(tf.shape(self.local.x)[0])
      opt = tf.train.AdamOptimizer(1e-2)
      self.train_op = tf.group(
          opt.apply_gradients(list(zip(grads, self.network.var_list))), inc_step)
    self.rollouts = queue.Queue(5)

  def play(self, sess):
    with sess.as_default():
      while True:
        place, rollout = 2, []
        while 0 < place < PLACES - 1:
          seen = np.eye(PLACES)[place]
          action = self.local.sample.eval({self.local.x: [seen]})
          place += 1 if action else -1
          rollout.append((seen, action, float(place == PLACES - 1)))
        self.rollouts.put(rollout, timeout=600.0)

  def process(self, sess):
    sess.run(self.sync)
    states, actions, rewards = [
        np.array(one) for one in zip(*self.rollouts.get(timeout=600.0))]
    sess.run(self.train_op, {self.local.x: states, self.action: actions,
                             self.reward: np.cumsum(rewards[::-1])[::-1]})
    return len(states)


def run(args, server):
  trainer = A3C(args.task_index)
  variables_to_save = [v for v in tf.global_variables() if not v.name.startswith("local")]
  init_all_op = tf.global_variables_initializer()
  sv = tf.train.Supervisor(
      is_chief=(args.task_index == 0), logdir=args.log_dir, saver=FastSaver(variables_to_save),
      summary_op=None, init_op=tf.variables_initializer(variables_to_save),
      init_fn=lambda sess: sess.run(init_all_op),
      summary_writer=tf.summary.FileWriter(args.log_dir + "_%d" % args.task_index),
      ready_op=tf.report_uninitialized_variables(variables_to_save),
      global_step=trainer.global_step, save_model_secs=30, save_summaries_secs=30)
  config = tf.ConfigProto(
      device_filters=["/job:ps", "/job:worker/task:{}/cpu:0".format(args.task_index)])
  with sv.managed_session(server.target, config=config) as sess, sess.as_default():
    sess.run(trainer.sync)
    player = threading.Thread(target=trainer.play, args=(sess,))
    player.daemon = True
    player.start()
    local_steps, global_step = 0, sess.run(trainer.global_step)
    while not sv.should_stop() and global_step < args.num_steps:
      local_steps += trainer.process(sess)
      global_step = sess.run(trainer.global_step)
    print("worker %d: %d local steps, global step %d" % (
        args.task_index, local_steps, global_step))
  sv.stop()


def main(_):
  parser = argparse.ArgumentParser()
  parser.add_argument("--ps_hosts")
  parser.add_argument("--worker_hosts")
  parser.add_argument("--job_name")
  parser.add_argument("--task_index", type=int)
  parser.add_argument("--log_dir", default="/tmp/agent")
  parser.add_argument("--num_steps", default=400, type=int)
  args = parser.parse_args()
  cluster = tf.train.ClusterSpec({
      "ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}).as_cluster_def()

  def shutdown(received, frame):
    print("Received signal %d: exiting" % received)
    sys.exit(128 + received)

  for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, shutdown)

  server = tf.train.Server(cluster, job_name=args.job_name, task_index=args.task_index,
                           config=tf.ConfigProto(device_filters=["/job:ps"])
                           if args.job_name == "ps" else None)
  if args.job_name == "worker":
    run(args, server)
  else:
    while True:
      time.sleep(1000)


if __name__ == "__main__":
  tf.app.run()
