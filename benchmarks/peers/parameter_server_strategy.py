"""TensorFlow 2's own: ParameterServerStrategy and ClusterCoordinator, as their tutorial shows them.

Each worker and each ps runs a `tf.distribute.Server`. The coordinator, which is the task of the job
"chief", creates the variables under the strategy and a dataset for each worker. It schedules a
`tf.function` repeatedly, and joins every few steps. `--unroll=8` puts eight steps, each on its own
batch, into one function. The update is the operation that TensorFlow's gradient descent runs on the
ps.
"""
from __future__ import annotations

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow as tf  # noqa: E402  isort: skip

from benchmarks import counters, models  # noqa: E402

_JOIN_EVERY = 48  # steps


def make_variables(model, seed):
  """The model's variables by name, under the strategy's scope."""
  def value_of(value):
    return tf.zeros(value) if isinstance(value, tuple) else tf.constant(value)

  return {name: tf.Variable(lambda value=value: value_of(value), name=name,
                            shape=value if isinstance(value, tuple) else value.shape,
                            dtype=tf.float32)
          for name, value in models.initial_values(model, seed)}


def update(variable, gradient, rate):
  """Applies gradient descent on the variable's device."""
  if isinstance(gradient, tf.IndexedSlices):
    tf.raw_ops.ResourceScatterSub(resource=variable.handle, indices=gradient.indices,
                                  updates=rate * gradient.values)
  else:
    tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=gradient)


def make_step(model, variables, rate, unroll):
  """Returns a function of an iterator that makes `unroll` steps."""
  names = list(variables)

  @tf.function
  def step(iterator):
    for _ in range(unroll):
      features, labels = next(iterator)
      with tf.GradientTape() as tape:
        loss = models.loss(tf, model, features, labels, lambda name: variables[name])
      gradients = tape.gradient(loss, [variables[name] for name in names])
      for name, gradient in zip(names, gradients):
        update(variables[name], gradient, rate)

  return step


def main():
  """Runs a task."""
  parser = arguments.parser(__doc__.splitlines()[0])
  parser.add_argument("--chief_hosts", required=True, help="host:port of the coordinator")
  parser.add_argument("--unroll", type=int, default=1, help="steps in one function")
  args = parser.parse_args()
  cluster = tf.train.ClusterSpec({job: getattr(args, job + "_hosts").split(",")
                                  for job in ("ps", "worker", "chief")})
  if not hasattr(tf.distribute, "coordinator"):
    raise SystemExit("TensorFlow %s has no ClusterCoordinator" % tf.__version__)
  if args.job_name != "chief":
    tf.distribute.Server(cluster, args.job_name, args.task_index, protocol="grpc").join()
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    cluster, task_type="chief", task_id=0, rpc_layer="grpc")
  strategy = tf.distribute.ParameterServerStrategy(resolver)
  model = models.get(args.model)
  data = models.data(model, args.seed, args.minibatches)
  with strategy.scope():
    variables = make_variables(model, args.seed)
  coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
  iterator = iter(coordinator.create_per_worker_dataset(
    lambda: models.dataset(tf, model, data.features, data.labels).repeat().prefetch(2)))
  step = make_step(model, variables, args.learning_rate or model.learning_rate, args.unroll)
  counter = counters.Counter(args.counter)
  while not args.steps or counter.steps < args.steps:
    # The first call is alone, because it traces the function.
    calls = _JOIN_EVERY // args.unroll if counter.steps else 1
    if args.steps:
      calls = min(calls, -(-(args.steps - counter.steps) // args.unroll))
    for _ in range(calls):
      coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    counter.add(calls * args.unroll)
  loss = models.loss(tf, model, models.eval_features(data), data.eval_labels,
                     lambda name: variables[name])
  print("loss %.9g" % float(loss), flush=True)


if __name__ == "__main__":
  main()
