"""The models of the benchmarks as a program of tf1ps; the benchmarks measure tf1ps's flags with it.

`tf1ps-local --program=benchmarks/program.py --bench_model=L`, from the checkout, runs it by hand.
"""
from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow.compat.v1 as tf  # noqa: E402
from absl import flags  # noqa: E402

import tf1ps  # noqa: E402
from benchmarks import models  # noqa: E402

flags.DEFINE_string("bench_model", "S", "The model, see benchmarks/models.py.")
flags.DEFINE_integer("bench_seed", 0, "Of the order of data, and of initial values.")
flags.DEFINE_integer("bench_minibatches", models.POOL, "Minibatches that are made; used in turn.")
flags.DEFINE_integer("bench_straggler", -1, "The worker that sleeps in each step.")
flags.DEFINE_float("bench_sleep", 0.1, "Seconds that it sleeps.")
flags.DEFINE_enum("bench_look_up", "rows", ["rows", "unique", "bags"],
                  "What travels of an embedding: each row, each distinct row, or sums of bags.")
FLAGS = flags.FLAGS
MICRO = "micro_loss"  # the loss in millionths, so that it is printed with all of its digits


def input_fn(mode, shard):
  """Returns a minibatch from memory, which in each step is this worker's next minibatch."""
  model = models.get(FLAGS.bench_model)
  data = models.data(model, FLAGS.bench_seed, FLAGS.bench_minibatches)
  if mode == "train":
    batches = shard.dataset(models.dataset(tf, model, data.features, data.labels))
  else:
    batches = shard.dataset(models.dataset(
      tf, model, data.eval_features[None], data.eval_labels[None]))
  features, labels = tf.data.make_one_shot_iterator(batches.prefetch(2)).get_next()
  if mode == "train" and shard.index == FLAGS.bench_straggler:
    with tf.control_dependencies([tf.py_func(_sleep, [], [], stateful=True)]):
      features = tf.identity(features)
  return features, labels


def _sleep():
  import threading

  threading.Event().wait(FLAGS.bench_sleep)


def look_up(table, ids):
  """The sum of each bag, [batch, width]."""
  from tf1ps.transfer import embedding_lookup, embedding_lookup_sparse

  if FLAGS.bench_look_up == "bags":
    return embedding_lookup_sparse(table, ids, combiner="sum")
  return tf.reduce_sum(embedding_lookup(table, ids, unique=True), axis=1)


def model_fn(features, labels, mode):
  """The model's loss."""
  model = models.get(FLAGS.bench_model)
  with tf.variable_scope("model"):
    variables = models.graph_variables(tf, model, FLAGS.bench_seed)
    loss = models.loss(tf, model, features, labels, variables,
                       None if FLAGS.bench_look_up == "rows" else look_up)
  metrics = {MICRO: tf.metrics.mean(1e6 * loss)} if mode == "eval" else None
  return tf1ps.ModelSpec(loss=loss, metrics=metrics)
