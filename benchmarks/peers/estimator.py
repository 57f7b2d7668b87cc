"""A `tf.estimator` as people write it: `train_and_evaluate` makes each task what TF_CONFIG says.

TensorFlow has had no estimators since 2.16, so on TensorFlow 2 only `tf1ps-run` runs this script.
"""
from __future__ import annotations

import json
import os
import tempfile

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip

from benchmarks import counters, models  # noqa: E402

_FOREVER = 10 ** 9  # steps


class SayLoss(tf.train.SessionRunHook):
  """Prints the loss on the held-out data at the end, because a run may have several steps."""

  def __init__(self, eval_loss):
    self._eval_loss = eval_loss

  def end(self, session):
    print("loss %.9g" % session.run(self._eval_loss), flush=True)


def set_cluster(args):
  """Sets TF_CONFIG: worker 0 is the chief, which an estimator's cluster must have."""
  workers = args.worker_hosts.split(",")
  cluster = {"ps": args.ps_hosts.split(","), "chief": workers[:1]}
  if workers[1:]:
    cluster["worker"] = workers[1:]
  task = {"type": args.job_name, "index": args.task_index}
  if args.job_name == "worker":
    task = {"type": "worker" if args.task_index else "chief", "index": max(0, args.task_index - 1)}
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
  return len(workers)


def main():
  """Runs a task."""
  args = arguments.parser(__doc__.splitlines()[0]).parse_args()
  arguments.prepare(tf, args)
  count = set_cluster(args)
  model, data, variables = models.of_arguments(tf, args)
  counter = counters.Counter(args.counter)

  def input_fn():
    return models.dataset(tf, model, data.features, data.labels).shard(
      count, args.task_index).repeat().prefetch(2)

  def model_fn(features, labels, mode):
    with tf.variable_scope("model"):
      loss = models.loss(tf, model, features, labels, variables)
    train_op = arguments.make_optimizer(tf, args, model).minimize(loss, tf.train.get_global_step())
    with tf.control_dependencies([train_op]):
      train_op = tf.py_func(counter.add, [], [], name="count")
    with tf.variable_scope("model", reuse=True):
      eval_loss = models.loss(tf, model, models.eval_features(data), data.eval_labels, variables)
    return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=train_op, training_hooks=[SayLoss(eval_loss)])

  with tempfile.TemporaryDirectory() as folder:
    estimator = tf.estimator.Estimator(model_fn, folder)
    tf.estimator.train_and_evaluate(
      estimator, tf.estimator.TrainSpec(input_fn, max_steps=args.steps * count or _FOREVER),
      tf.estimator.EvalSpec(input_fn, steps=1))
  os._exit(0)  # a stock ps does not learn that the job has ended


if __name__ == "__main__":
  main()
