"""tf1ps' ClusterCoordinator, as its document shows it: the chief schedules each step.

The program is the same as in parameter_server_strategy.py: a dataset for each worker, a function
that draws a batch and updates the variables by gradient descent, and a join every few steps.
"""
from __future__ import annotations

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip

import tf1ps  # noqa: E402
from benchmarks import counters, models  # noqa: E402

_JOIN_EVERY = 48  # steps
_FOREVER = 1e9  # seconds: a system is stopped while the others have their turns


def main():
  """Runs a task."""
  parser = arguments.parser(__doc__.splitlines()[0])
  parser.add_argument("--chief_hosts", required=True, help="host:port of the coordinator")
  parser.add_argument("--steps_per_execution", type=int, help="steps in one run; else auto")
  args = parser.parse_args()
  arguments.prepare(tf, args)
  cluster = {job: getattr(args, job + "_hosts").split(",") for job in ("ps", "worker", "chief")}
  server = tf1ps.Server(cluster, args.job_name, args.task_index, heartbeat_timeout=_FOREVER)
  if args.job_name != "chief":
    server.join()
  model, data, variables = models.of_arguments(tf, args)
  optimizer = arguments.make_optimizer(tf, args, model)

  def step(iterator):
    features, labels = iterator.get_next()
    with tf.variable_scope("model"):
      loss = models.loss(tf, model, features, labels, variables)
    return optimizer.minimize(loss, tf.train.get_or_create_global_step())

  def evaluate():
    with tf.variable_scope("model"):
      return models.loss(tf, model, models.eval_features(data), data.eval_labels, variables)

  counter = counters.Counter(args.counter)
  with tf1ps.ClusterCoordinator(
      server, steps_per_execution=args.steps_per_execution or "auto") as coordinator:
    iterator = iter(coordinator.create_per_worker_dataset(
      lambda: models.dataset(tf, model, data.features, data.labels).repeat().prefetch(2)))
    coordinator.build(step, (iterator,))
    coordinator.build(evaluate)
    while not args.steps or counter.steps < args.steps:
      calls = min(_JOIN_EVERY, args.steps - counter.steps) if args.steps else _JOIN_EVERY
      for _ in range(calls):
        coordinator.schedule(step, (iterator,))
      coordinator.join()
      counter.add(calls)
    print("loss %.9g" % coordinator.schedule(evaluate).fetch(), flush=True)


if __name__ == "__main__":
  main()
