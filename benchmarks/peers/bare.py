"""The graph that tf1ps builds for a worker, in a plain session: what its training loop is held to.

It has the same graph, options and cluster as `tf1ps-worker`, but no hook, heartbeat or checkpoint.
"""
from __future__ import annotations

import os
import sys

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip
from absl import flags  # noqa: E402

from benchmarks import counters, models  # noqa: E402
from tf1ps.cluster import resolve_cluster  # noqa: E402
from tf1ps.program import load_program  # noqa: E402
from tf1ps.training import Options, build_step, shard_of


def build(args):
  """Builds the graph as `tf1ps-worker` does without options; returns the replica."""
  loaded = load_program("benchmarks.program")  # the program defines its flags
  flags.FLAGS(sys.argv[:1] + ["--bench_model=" + args.model, "--bench_seed=%d" % args.seed,
                              "--bench_minibatches=%d" % args.minibatches])
  model = models.get(args.model)
  cluster = resolve_cluster(
    args.ps_hosts, args.worker_hosts, job_name="worker", task_index=args.task_index,
    needs_ps="worker")
  options = Options(
    steps=10 ** 9, optimizer="sgd", learning_rate=model.learning_rate)
  shard = shard_of(options, cluster.replica_index, cluster.num_replicas)
  return build_step(loaded, cluster, shard, options)


def main():
  """Runs a task."""
  args = arguments.parser(__doc__.splitlines()[0]).parse_args()
  tf.disable_v2_behavior()
  tf.logging.set_verbosity("ERROR")
  addresses = {"ps": args.ps_hosts.split(","), "worker": args.worker_hosts.split(",")}
  server = tf.train.Server(addresses, args.job_name, args.task_index)
  if args.job_name == "ps":
    server.join()
  replica = build(args)
  model = models.get(args.model)
  data = models.data(model, args.seed, args.minibatches)
  with tf.variable_scope("model", reuse=True, use_resource=True):
    eval_loss = models.loss(tf, model, models.eval_features(data), data.eval_labels,
                            models.graph_variables(tf, model, args.seed))
  counter = counters.Counter(args.counter)
  with tf.Session(server.target) as session:
    session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    while not args.steps or counter.steps < args.steps:
      session.run([replica.train_op, replica.loss])
      counter.add()
    print("loss %.9g" % session.run(eval_loss), flush=True)
    os._exit(0)  # a stock ps does not learn that the job has ended


if __name__ == "__main__":
  main()
