"""The classic between-graph script of TensorFlow's own guide to distributed training.

Each ps and each worker is a process. A ps joins. A worker places the variables on the ps by
`tf.train.replica_device_setter`, and runs its train_op in a loop. The session is a plain session;
with `--session=monitored`, a `tf.train.MonitoredTrainingSession` with its default hooks; or with
`--session=supervisor`, the session of a `tf.train.Supervisor`.

With `--unroll=8` the script unrolls eight steps into one run by hand: each step draws its own batch
after the batch of the step before, and reads the variables after the update of the step before.
This shows the most that a loop with fewer runs can gain here; at the end of its data such a run
would be lost.
"""
from __future__ import annotations

import contextlib
import os
import tempfile
import time

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip

from benchmarks import counters, models  # noqa: E402


def make_parser():
  """The command line of this script."""
  parser = arguments.parser(__doc__.splitlines()[0])
  parser.add_argument("--session", default="plain", choices=["plain", "monitored", "supervisor"])
  parser.add_argument("--unroll", type=int, default=1, help="steps in one run")
  parser.add_argument("--channels", type=int, default=0, help="connections to each task; 0: one")
  parser.add_argument("--threads", type=int, default=0, help="of each pool; 0: TensorFlow's choice")
  return parser


def build(args, cluster, evaluates=True):
  """Builds the graph; returns its train_op and, if `evaluates`, the loss on the held-out data."""
  model, data, variables = models.of_arguments(tf, args)
  worker = "/job:worker/task:%d" % args.task_index
  batches = models.dataset(tf, model, data.features, data.labels)
  if len(cluster["worker"]) > 1:
    batches = batches.shard(len(cluster["worker"]), args.task_index)
  with tf.device(tf.train.replica_device_setter(worker_device=worker, cluster=cluster)):
    iterator = tf.data.make_one_shot_iterator(batches.repeat().prefetch(2))
    features, labels = iterator.get_next()
    global_step = tf.train.get_or_create_global_step()
    optimizer = arguments.make_optimizer(tf, args, model)
    with tf.variable_scope("model"):
      loss = models.loss(tf, model, features, labels, variables)
    train_op = optimizer.minimize(loss, global_step)
    for _ in range(args.unroll - 1):
      with tf.control_dependencies([features]):
        features, labels = iterator.get_next()
      train_op = next_step(model, features, labels, variables, optimizer, global_step, train_op)
    if not evaluates:
      return train_op, None
    with tf.variable_scope("model", reuse=True):
      eval_loss = models.loss(
        tf, model, models.eval_features(data), data.eval_labels, variables)
  return train_op, eval_loss


def next_step(model, features, labels, variables, optimizer, global_step, before):
  """Builds another step, which reads values after the update `before`; returns its train_op."""
  read = {}  # variable and value, by name

  def value(name):
    if name not in read:
      variable = variables(name)
      with tf.device(variable.device), tf.control_dependencies([before]):
        read[name] = variable, tf.identity(variable.read_value())
    return read[name][1]

  with tf.variable_scope("model", reuse=True):
    loss = models.loss(tf, model, features, labels, value)
  gradients = tf.gradients(loss, [one for _, one in read.values()])
  return optimizer.apply_gradients(
    zip(gradients, [variable for variable, _ in read.values()]), global_step)


@contextlib.contextmanager
def open_session(args, target, config):
  """The session, initialised by worker 0."""
  is_chief = args.task_index == 0
  if args.session == "monitored":
    with tempfile.TemporaryDirectory() as folder:
      with tf.train.MonitoredTrainingSession(
          target, is_chief, folder if is_chief else None, config=config) as session:
        yield session
    return
  if args.session == "supervisor":
    with tempfile.TemporaryDirectory() as folder:
      supervisor = tf.train.Supervisor(is_chief=is_chief, logdir=folder, recovery_wait_secs=1)
      yield supervisor.prepare_or_wait_for_session(target, config)
    return
  init = tf.global_variables_initializer()
  ready = tf.report_uninitialized_variables()
  with tf.Session(target, config=config) as session:
    if is_chief:
      session.run(init)
    while session.run(ready).size:
      pass
    yield session


def main():
  """Runs a task."""
  args = make_parser().parse_args()
  arguments.prepare(tf, args)
  cluster = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
  config = tf.ConfigProto(
    inter_op_parallelism_threads=args.threads, intra_op_parallelism_threads=args.threads)
  if args.channels:
    config.rpc_options.num_channels_per_target = args.channels
  server = tf.train.Server(cluster, args.job_name, args.task_index, config=config)
  if args.job_name == "ps":
    server.join()
  train_op, eval_loss = build(args, cluster)
  config.device_filters.extend(["/job:ps", "/job:worker/task:%d" % args.task_index])
  global_step = tf.train.get_global_step()
  counter = counters.Counter(args.counter)
  with open_session(args, server.target, config) as session:
    while not args.steps or counter.steps < args.steps:
      session.run(train_op)
      counter.add(args.unroll)
    while session.run(global_step) < args.steps * len(cluster["worker"]):
      time.sleep(0.01)  # another worker has not made all of its steps
    print("loss %.9g" % session.run(eval_loss), flush=True)
    os._exit(0)  # a stock ps does not learn that the job has ended


if __name__ == "__main__":
  main()
