"""A benchmark: its workers wait for each other by tokens in queues, first of all in local_init_op.
Each fetches the weights from the ps, or keeps a copy that follows them."""
from __future__ import print_function

import argparse
import threading
import time

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--ps_hosts", default="")
parser.add_argument("--worker_hosts", default="")
parser.add_argument("--job_name", default="")
parser.add_argument("--task_index", type=int, default=0)
parser.add_argument("--train_dir", default=None)
parser.add_argument("--variable_update", default="distributed_replicated")
parser.add_argument("--cross_replica_sync", type=int, default=1)
parser.add_argument("--num_warmup_batches", type=int, default=10)
parser.add_argument("--num_batches", type=int, default=50)


class GlobalStepWatcher(threading.Thread):
  """Notes when the job has made its steps."""

  def __init__(self, sess, global_step, end_at):
    threading.Thread.__init__(self)
    self.daemon = True
    self.sess, self.global_step, self.end_at = sess, global_step, end_at
    self.finish_time = 0

  def run(self):
    while self.finish_time == 0:
      time.sleep(0.25)
      if self.sess.run(self.global_step) >= self.end_at:
        self.finish_time = time.time()

  def done(self):
    return self.finish_time > 0


class Benchmark(object):

  def __init__(self, args):
    self.args = args
    self.num_workers = len(args.worker_hosts.split(","))
    self.cluster = tf.train.ClusterSpec({
        "ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")})
    self.server = tf.train.Server(
        self.cluster, job_name=args.job_name, task_index=args.task_index,
        config=tf.ConfigProto(allow_soft_placement=True))
    self.sync_queue_counter = 0

  def add_sync_queues_and_barrier(self, name_prefix, enqueue_after_list):
    """Returns an op that ends when every worker has got there."""
    self.sync_queue_counter += 1
    with tf.device("/job:ps/task:%d/cpu:0" % (
        self.sync_queue_counter % self.cluster.num_tasks("ps"))):
      sync_queues = [
          tf.FIFOQueue(self.num_workers, [tf.bool], shapes=[[]],
                       shared_name="%s%d" % (name_prefix, i)) for i in range(self.num_workers)]
      token = tf.constant(False)
      with tf.control_dependencies(enqueue_after_list):
        queue_ops = [q.enqueue(token) for i, q in enumerate(sync_queues)
                     if i != self.args.task_index]
      queue_ops.append(sync_queues[self.args.task_index].dequeue_many(self.num_workers - 1))
      return tf.group(*queue_ops)

  def build(self):
    worker = "/job:worker/task:%d/cpu:0" % self.args.task_index
    setter = tf.train.replica_device_setter(
        worker_device=worker, cluster=self.cluster,
        ps_strategy=tf.contrib.training.GreedyLoadBalancingStrategy(
            self.cluster.num_tasks("ps"), tf.contrib.training.byte_size_load_fn))
    with tf.device("/job:ps/task:0/cpu:0"):
      self.global_step = tf.train.get_or_create_global_step()
    with tf.device(setter):
      x = tf.random_uniform([32, 4], -1.0, 1.0)
      y = tf.matmul(x, tf.constant([[1.0], [-2.0], [3.0], [0.5]]))
      shared = tf.get_variable("w", [4, 1], initializer=tf.zeros_initializer())
      weights, copies = shared, []
      if self.args.variable_update == "distributed_replicated":
        with tf.device(worker):
          weights = tf.get_variable("v0/w", [4, 1], collections=[tf.GraphKeys.LOCAL_VARIABLES])
        copies = [weights.assign(shared.read_value())]
      loss = tf.reduce_mean(tf.square(tf.matmul(x, weights) - y))
      update = tf.train.GradientDescentOptimizer(0.1).apply_gradients(
          [(tf.gradients(loss, weights)[0], shared)])
      if copies:
        updated = self.add_sync_queues_and_barrier("replicate_variable_", [update])
        with tf.control_dependencies([updated]):
          update = weights.assign(tf.identity(shared.read_value()))
      fetches = {"train": update, "average_loss": loss}
      main_fetch_group = tf.group(update, loss)
      self.execution_barrier = None
      if not self.args.cross_replica_sync:
        self.execution_barrier = self.add_sync_queues_and_barrier("execution_barrier_", [])
      with tf.control_dependencies([main_fetch_group]):
        fetches["inc_global_step"] = self.global_step.assign_add(1)
      local_var_init_op = tf.local_variables_initializer()
      with tf.control_dependencies([local_var_init_op]):
        init_ops = [local_var_init_op, tf.tables_initializer()] + [
            weights.assign(shared.read_value()) for _ in copies]
      if self.args.cross_replica_sync:
        fetches["sync_queues"] = self.add_sync_queues_and_barrier(
            "sync_queues_step_end_", [main_fetch_group])
        init_ops.append(self.add_sync_queues_and_barrier("init_ops_end_", init_ops))
      self.local_var_init_op = tf.group(*init_ops)
    return fetches

  def run(self):
    fetches = self.build()
    is_chief = self.args.task_index == 0
    sv = tf.train.Supervisor(
        is_chief=is_chief, logdir=self.args.train_dir if is_chief else None,
        ready_for_local_init_op=tf.report_uninitialized_variables(tf.global_variables()),
        local_init_op=[self.local_var_init_op], global_step=self.global_step, summary_op=None,
        saver=tf.train.Saver(tf.global_variables()) if is_chief else None, save_model_secs=0)
    with sv.managed_session(
        master=self.server.target, config=tf.ConfigProto(allow_soft_placement=True),
        start_standard_services=bool(self.args.train_dir)) as sess:
      local_step, speeds = -self.args.num_warmup_batches, []
      done = lambda: local_step >= self.args.num_batches  # noqa: E731
      if self.execution_barrier:
        watcher = GlobalStepWatcher(sess, self.global_step, self.num_workers * (
            self.args.num_warmup_batches + self.args.num_batches) - 1)
        watcher.start()
        done = watcher.done
      while not done():
        if local_step == 0 and self.execution_barrier:
          sess.run([self.execution_barrier])  # when all have warmed up
        start = time.time()
        results = sess.run(fetches)
        speeds.append(32 / (time.time() - start))
        local_step += 1
        if local_step % 25 == 0:
          print("%d\timages/sec: %.1f\t%.3f" % (
              local_step, np.mean(speeds), results["average_loss"]))
      print("worker %d: %d local steps, global step %d" % (
          self.args.task_index, len(speeds), sess.run(self.global_step)))
      if self.args.train_dir and is_chief:
        sv.saver.save(sess, self.args.train_dir + "/model.ckpt", self.global_step)
      if self.execution_barrier:
        sess.run([self.execution_barrier])  # nobody leaves while another one needs it
    sv.stop()


def main(_):
  args = parser.parse_args()
  bench = Benchmark(args)
  if args.job_name == "ps":
    bench.server.join()
  else:
    bench.run()


if __name__ == "__main__":
  tf.app.run()
