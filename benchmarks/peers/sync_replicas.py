"""TensorFlow's own synchronous training, as the guide of `tf.train.SyncReplicasOptimizer` shows it.

The optimizer wraps another optimizer, and returns a hook for the
`tf.train.MonitoredTrainingSession`. By default there are free tokens, with which a worker may begin
its next step before the update; with `--tokens=0` a worker waits for the update. If `--aggregate`
is below the number of workers, the slowest workers are left out. `--straggler` names a worker that
sleeps in each step. The chief counts global steps.
"""
from __future__ import annotations

import os
import threading

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip

from benchmarks import counters, models  # noqa: E402


def parse():
  """Parses the command line."""
  parser = arguments.parser(__doc__.splitlines()[0])
  parser.add_argument("--aggregate", type=int, default=0, help="0: the number of workers")
  parser.add_argument("--straggler", type=int, default=-1, help="the worker that sleeps")
  parser.add_argument("--sleep", type=float, default=0.1, help="seconds of each of its steps")
  parser.add_argument("--tokens", type=int, default=-1, help="free ones; -1: the hook's default")
  return parser.parse_args()


def inputs(args, model, data, count):
  """Returns this worker's part of the data; the straggler gets its part slowly."""
  batches = models.dataset(tf, model, data.features, data.labels).shard(count, args.task_index)
  features, labels = tf.data.make_one_shot_iterator(batches.repeat().prefetch(2)).get_next()
  if args.task_index == args.straggler:
    sleep = tf.py_func(lambda: threading.Event().wait(args.sleep) or 0, [], tf.int64)
    with tf.control_dependencies([sleep]):
      features = tf.identity(features)
  return features, labels


def main():
  """Runs a task."""
  args = parse()
  arguments.prepare(tf, args)
  cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
  server = tf.train.Server(cluster, args.job_name, args.task_index)
  if args.job_name == "ps":
    server.join()
  count, is_chief = len(cluster["worker"]), args.task_index == 0
  model, data, variables = models.of_arguments(tf, args)
  worker = "/job:worker/task:%d" % args.task_index
  with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
    features, labels = inputs(args, model, data, count)
    global_step = tf.train.get_or_create_global_step()
    with tf.variable_scope("model"):
      loss = models.loss(tf, model, features, labels, variables)
    optimizer = tf.train.SyncReplicasOptimizer(
      arguments.make_optimizer(tf, args, model),
      replicas_to_aggregate=args.aggregate or count, total_num_replicas=count)
    train_op = optimizer.minimize(loss, global_step)
    with tf.variable_scope("model", reuse=True):
      eval_loss = models.loss(tf, model, models.eval_features(data), data.eval_labels, variables)
  counter = counters.Counter(args.counter)
  config = tf.ConfigProto(device_filters=["/job:ps", worker])
  with tf.train.MonitoredTrainingSession(
      server.target, is_chief, config=config,
      hooks=[optimizer.make_session_run_hook(is_chief, num_tokens=args.tokens)]) as session:
    while not args.steps or counter.steps < args.steps:
      _, step = session.run([train_op, global_step])
      # A global step that is fetched with a training step may be from before the step's end.
      counter.set(int(session.run(global_step) if args.steps else step))
    print("loss %.9g" % session.run_step_fn(
      lambda step_context: step_context.session.run(eval_loss)), flush=True)
    os._exit(0)  # queue runners hold the session open, and the other workers wait for tokens


if __name__ == "__main__":
  main()
