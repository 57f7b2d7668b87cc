"""Bags of words: an embedding table on several ps, of which each step moves only a few rows.

    tf1ps-local --program=examples/bags.py --num_ps=2 --partition_bytes=16000 --optimizer=lazy_adam

The program learns from made-up reviews whether they are kind. A review is a bag of 3 to 10 words
out of 2,000. Most of its words are among a few common ones. Each word is a little kind or a little
unkind, and the sum decides.

1. `input_fn` returns a batch of reviews as word numbers, [batch, 10], with -1 after a shorter one.
2. `model_fn` looks up the mean of each review's rows. Each ps sums the rows that it holds. So only
   [batch, 8] travels: the sums to the worker, and their gradient back.
"""
from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.transfer import embedding_lookup_sparse

WORDS, WIDTH, LONGEST, NONE = 2000, 8, 10, -1
REVIEWS = {"train": 8000, "eval": 1000, "predict": 1000}


def make_reviews(mode: str):
  """Returns words [reviews, LONGEST] and 1.0 for each kind review [reviews]; always the same."""
  kindness = np.random.RandomState(3).normal(size=WORDS)
  random = np.random.RandomState(1 if mode == "train" else 2)
  words = (WORDS * random.power(0.4, [REVIEWS[mode], LONGEST])).astype(np.int64)
  lengths = random.randint(3, LONGEST + 1, [REVIEWS[mode], 1])
  is_word = np.arange(LONGEST) < lengths
  kind = np.where(is_word, kindness[words], 0).sum(1) > 0
  return np.where(is_word, words, NONE), kind.astype(np.float32)


def input_fn(mode, shard):
  """Returns batches of reviews, and of 1.0 for each kind review."""
  reviews = tf.data.Dataset.from_tensor_slices(make_reviews(mode))
  return shard.dataset(reviews, shuffle=1000).batch(shard.batch_size)


def model_fn(features, labels, mode):
  """Logistic regression on the mean of the words' rows."""
  table = tf.get_variable("table", [WORDS, WIDTH], initializer=tf.random_normal_initializer(0, 0.1))
  weights = tf.get_variable("weights", [WIDTH, 1])
  bags = embedding_lookup_sparse(table, features, combiner="mean", padding_id=NONE)
  score = tf.matmul(bags, weights)[:, 0]
  if mode == "predict":
    return tf1ps.ModelSpec(predictions={"kind": tf.sigmoid(score)})
  loss = tf.losses.sigmoid_cross_entropy(labels, score)
  accuracy = tf.metrics.accuracy(labels, tf.cast(score > 0, tf.float32))
  return tf1ps.ModelSpec(loss=loss, predictions={"kind": tf.sigmoid(score)},
                         metrics={"accuracy": accuracy})
