"""One coordinator schedules the steps of three workers: words, their embedding, an answer.

Example E9.
Mechanism: a coordinator. The ps and the workers are plain servers. The chief has the program: it
schedules a step, any free worker runs it, and the step of a lost worker runs on another one.
Each basket has three kinds of fruit; the label is "yes" if one of them is the apple. The words
become row numbers by lookup tables in each worker's own dataset. The embedding of 9 rows (8 fruits,
and one for unknown words) is divided over the two ps. The table shows the bytes of each ps, and the
rows that a step looks up there: with five of eight fruits, ps 0 has more lookups. The last line is
the inline evaluation: the workers divide 200 new baskets, and each basket counts once.
Two traps: pass the iterator itself to `schedule`, because its elements are on the workers, and
`next(iterator)` raises an error that says so. And schedule a step or call it, not both: a call
beside `schedule` would train each batch twice.
Toolkit: tf1ps.ClusterCoordinator (docs/coordinator.md) on tf1ps.local_cluster.

    $ python examples/coordinator.py
    epoch 1: accuracy 0...
    epoch 2: accuracy ...
    epoch 3: accuracy ...
    epoch 4: accuracy 1.000
    embedding: (5, 20) on /job:ps/task:0, (4, 20) on /job:ps/task:1
    ps              variables  shards  bytes  share  lookups  share
    /job:ps/task:0          4       4    808  50.0%  ...
    /job:ps/task:1          7       6    808  50.0%  ...
    20 steps by 3 workers, 0 retries; 200 of 200 new baskets are right

With TF_CONFIG in the environment the same file is every role of a cluster of processes. The
evaluator restores each checkpoint into an embedding that is not divided:

    1$ TF_CONFIG='{"cluster": {"ps": ["127.0.0.1:2221"], "worker": ["127.0.0.1:2222"], \
        "chief": ["127.0.0.1:2223"]}, "task": {"type": "ps", "index": 0}}' \
        python examples/coordinator.py
    ...
    2$ TF_CONFIG='{"cluster": {"ps": ["127.0.0.1:2221"], "worker": ["127.0.0.1:2222"], \
        "chief": ["127.0.0.1:2223"]}, "task": {"type": "worker", "index": 0}}' \
        python examples/coordinator.py
    ...
    3$ TF_CONFIG='{"cluster": {"ps": ["127.0.0.1:2221"], "worker": ["127.0.0.1:2222"], \
        "chief": ["127.0.0.1:2223"]}, "task": {"type": "chief", "index": 0}}' \
        python examples/coordinator.py --checkpoint_dir=/tmp/baskets
    epoch 1: accuracy 0...
    ...
    20 steps by 1 workers, 0 retries; 200 of 200 new baskets are right
    4$ TF_CONFIG='{"task": {"type": "evaluator", "index": 0}}' \
        python examples/coordinator.py --checkpoint_dir=/tmp/baskets
    evaluator: step 20, accuracy 1.000
"""
from __future__ import annotations

import json
import os
import random
import re
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.cluster import resolve_cluster
from tf1ps.placement import (
  count_lookups,
  fixed_size_partitioner,
  format_load_table,
  make_load_table,
)
from tf1ps.program import as_program, follow_checkpoints
from tf1ps.transfer import embedding_lookup

flags.DEFINE_string("checkpoint_dir", None, "Where the chief saves, and the evaluator looks.")

FRUITS = ["apple", "banana", "cherry", "fig", "grape", "lemon", "mango", "plum"]
ROWS, WIDTH = len(FRUITS) + 1, 20
BATCH, EPOCHS, STEPS = 32, 4, 5
NEW = 200  # baskets to evaluate on


def baskets(seed, count):
  """Returns baskets of three kinds of fruit, and their labels."""
  draw = random.Random(seed)
  made = [draw.sample(FRUITS, 3) for _ in range(count)]
  return made, ["yes" if "apple" in basket else "no" for basket in made]


def make_look_up():
  """Returns a function of words and labels that gives their numbers, by lookup tables."""
  def table(vocabulary, num_unknown):
    return tf.lookup.StaticVocabularyTable(tf.lookup.KeyValueTensorInitializer(
      vocabulary, np.arange(len(vocabulary)), tf.string, tf.int64), num_unknown)

  fruits, answers = table(FRUITS, 1), table(["no", "yes"], 1)
  return lambda words, labels: (fruits.lookup(words), answers.lookup(labels))


def dataset_of(seed, count=NEW):
  """Returns a dataset of baskets and labels, as numbers."""
  return tf.data.Dataset.from_tensor_slices(baskets(seed, count)).map(make_look_up())


def model(numbers):
  """Returns the logits [batch] of baskets [batch, 3]: the mean of the embedding, and a layer."""
  table = tf.get_variable("embedding", [ROWS, WIDTH],
                          initializer=tf.random_uniform_initializer(-0.05, 0.05, seed=1))
  weights = tf.get_variable("weights", [WIDTH, 1],
                            initializer=tf.glorot_uniform_initializer(seed=2))
  bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
  mean = tf.reduce_mean(embedding_lookup(table, numbers), axis=1)
  return tf.squeeze(tf.matmul(mean, tf.convert_to_tensor(weights)), 1) + bias


def loss_of(logits, labels):
  """The cross entropy of the answers."""
  return tf.losses.sigmoid_cross_entropy(labels, logits)


def count_right(logits, labels):
  """Counts the right answers of a batch."""
  return tf.reduce_sum(tf.cast(tf.equal(logits > 0, labels > 0), tf.int64))


def train(iterator):
  """One step; returns how many of the batch were right, how many there are, and the lookups."""
  numbers, labels = iterator.get_next()
  logits = model(numbers)
  loss = loss_of(logits, labels)
  update = tf.train.AdagradOptimizer(1.0).minimize(loss, tf.train.get_or_create_global_step())
  with tf.control_dependencies([update]):
    return count_right(logits, labels), tf.size(labels), count_lookups(loss)


def evaluate(words, labels):
  """Returns how many of these baskets are right; scheduled once for each range of baskets."""
  numbers, labels = make_look_up()(words, labels)
  return count_right(model(numbers), labels)


def coordinate(server, checkpoint_dir=None):
  """Trains by scheduled steps, and evaluates."""
  with tf1ps.ClusterCoordinator(server, checkpoint_dir,
                                partitioner=fixed_size_partitioner(2)) as coordinator:
    dataset = iter(coordinator.create_per_worker_dataset(
      lambda: dataset_of(seed=1).shuffle(NEW).repeat().batch(BATCH)))
    for epoch in range(1, EPOCHS + 1):
      steps = [coordinator.schedule(train, (dataset,)) for _ in range(STEPS)]
      coordinator.join()
      right, examples, lookups = zip(*coordinator.fetch(steps))
      print("epoch %d: accuracy %.3f" % (epoch, sum(right) / sum(examples)), flush=True)
    made = sum(coordinator.completed.values())
    words, labels = map(np.array, baskets(seed=2, count=NEW))
    parts = [coordinator.schedule(evaluate, (words[begin:begin + 25], labels[begin:begin + 25]))
             for begin in range(0, NEW, 25)]
    while not coordinator.done():  # like `join`, but the program may do other things meanwhile
      time.sleep(0.01)
    right = sum(coordinator.fetch(parts))
    shards = [v for v in coordinator.graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
              if re.match(r"embedding/part_\d+$", v.op.name)]
    print("embedding:", ", ".join(
      "%s on %s" % (tuple(v.shape.as_list()), v.device) for v in shards))
    print(format_load_table(make_load_table(graph=coordinator.graph), {
      task: np.mean([each[task] for each in lookups]) for task in lookups[0]}))
    print("%d steps by %d workers, %d retries; %d of %d new baskets are right" % (
      made, len(coordinator.completed), coordinator.retries, right, NEW), flush=True)


def input_fn(mode, shard):
  """The data of the evaluator."""
  del mode
  iterator = tf.data.make_initializable_iterator(dataset_of(seed=2).batch(shard.batch_size))
  tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
  return iterator.get_next()


def model_fn(features, labels, mode):
  """The model of the evaluator."""
  del mode
  logits = model(features)
  return tf1ps.ModelSpec(loss_of(logits, labels), {"yes": tf.sigmoid(logits)}, metrics={
    "accuracy": tf.metrics.accuracy(labels > 0, logits > 0)})


def main(_):
  """Does the part of this task."""
  checkpoint_dir = flags.FLAGS.checkpoint_dir
  tf.disable_v2_behavior()
  tf_config = os.environ.get("TF_CONFIG")
  if not tf_config:
    with tf1ps.local_cluster(num_ps=2, num_workers=3, chief=True) as cluster:
      coordinate(cluster.chief, checkpoint_dir)
  elif json.loads(tf_config)["task"]["type"] == "evaluator":
    outcome = follow_checkpoints(as_program((input_fn, model_fn)), checkpoint_dir, 60.0, 60.0, 50)
    print("evaluator: step %d, accuracy %.3f" % (
      outcome.last.global_step, outcome.last.metrics["accuracy"]))
    return outcome.code
  else:
    server = tf1ps.Server(resolve_cluster(tf_config=tf_config))
    if server.cluster.job_name == "chief":
      coordinate(server, checkpoint_dir)
    else:
      server.join()


if __name__ == "__main__":
  app.run(main)
