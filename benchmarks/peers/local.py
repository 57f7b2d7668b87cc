"""One process without a cluster: what a model costs where nothing travels."""
from __future__ import annotations

from benchmarks.peers import arguments  # before TensorFlow: it sets the environment

import tensorflow.compat.v1 as tf  # noqa: E402  isort: skip

from benchmarks import counters, models  # noqa: E402


def main():
  """Trains."""
  args = arguments.parser(__doc__.splitlines()[0]).parse_args()
  arguments.prepare(tf, args)
  model, data, variables = models.of_arguments(tf, args)
  batches = models.dataset(tf, model, data.features, data.labels).repeat().prefetch(2)
  features, labels = tf.data.make_one_shot_iterator(batches).get_next()
  global_step = tf.train.get_or_create_global_step()
  with tf.variable_scope("model"):
    loss = models.loss(tf, model, features, labels, variables)
  train_op = arguments.make_optimizer(tf, args, model).minimize(loss, global_step)
  with tf.variable_scope("model", reuse=True):
    eval_loss = models.loss(tf, model, models.eval_features(data), data.eval_labels, variables)
  counter = counters.Counter(args.counter)
  with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    while not args.steps or counter.steps < args.steps:
      session.run(train_op)
      counter.add()
    print("loss %.9g" % session.run(eval_loss), flush=True)


if __name__ == "__main__":
  main()
