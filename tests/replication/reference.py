"""A model with a dense and a sparse gradient, in TensorFlow and, as the reference, in numpy.

A prediction is a row of a table times a weight, plus a bias; the loss is the mean of the squared
errors. Some rows of the table are in no batch, some in only a few.
"""
from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.transfer import AdamWOptimizer

STEPS = 50
BATCH = 12  # of all replicas together
RATE = {"sgd": 0.1, "momentum": 0.05, "adam": 0.05, "adamw": 0.05}
WEIGHT_DECAY = {"adam": 0.0, "adamw": 0.1}
OPTIMIZERS = sorted(RATE)

_random = np.random.RandomState(7)
IDS = _random.randint(0, 8, [STEPS, BATCH])
IDS[:, 0] = np.arange(STEPS) % 2 + 8  # rows that come in every second step; 10 and 11 never
TARGETS = _random.uniform(-1, 1, [STEPS, BATCH]).astype(np.float32)
START = {"table": _random.uniform(-1, 1, [12, 3]).astype(np.float32),
         "weight": _random.uniform(-1, 1, [3]).astype(np.float32),
         "bias": np.float32(0.5)}


def make_optimizer(name):
  return {"sgd": lambda rate: tf.train.GradientDescentOptimizer(rate),
          "momentum": lambda rate: tf.train.MomentumOptimizer(rate, 0.9),
          "adam": lambda rate: tf.train.AdamOptimizer(rate),
          "adamw": lambda rate: AdamWOptimizer(rate, WEIGHT_DECAY[name])}[name](RATE[name])


def model(ids, targets, offset=0.0):
  """The loss in the default graph, for ids [n] and targets [n]; an offset of the first values."""
  table, weight, bias = (
    tf.get_variable(name, initializer=tf.constant(START[name] + np.float32(offset)))
    for name in ("table", "weight", "bias"))
  rows = tf.nn.embedding_lookup(table, ids, partition_strategy="div")
  predictions = tf.reduce_sum(rows * weight, axis=1) + bias
  return tf.reduce_mean(tf.square(predictions - targets))


def inputs(count, size):
  """Placeholders for so many parts of a batch, each of a size: lists of ids and of targets."""
  return ([tf.placeholder(tf.int32, [size]) for _ in range(count)],
          [tf.placeholder(tf.float32, [size]) for _ in range(count)])


def feed(placeholders, step, first=0, of=None):
  """Feeds the parts `first` and following of a step's batch, which is cut into `of` parts."""
  ids, targets = placeholders
  parts = {}
  for values, own in ((IDS, ids), (TARGETS, targets)):
    cut = np.split(values[step], of or len(own))
    parts.update(zip(own, cut[first:first + len(own)]))
  return parts


def train(optimizer, scale=1.0):
  """Trains in numpy, with gradients times a scale; returns the variables and the last loss."""
  values = {name: np.array(value, np.float64) for name, value in START.items()}
  first = {name: np.zeros_like(value) for name, value in values.items()}
  second = {name: np.zeros_like(value) for name, value in values.items()}
  for step in range(STEPS):
    ids, rows = IDS[step], values["table"][IDS[step]]
    errors = rows.dot(values["weight"]) + values["bias"] - TARGETS[step]
    table = np.zeros_like(values["table"])
    np.add.at(table, ids, 2 * errors[:, np.newaxis] * values["weight"] / BATCH)
    means = {"table": table * scale, "weight": 2 * errors.dot(rows) / BATCH * scale,
             "bias": 2 * errors.mean() * scale}
    for name, mean in means.items():
      # Momentum of a sparse gradient: the rows that nobody has stand still.
      here = np.unique(ids) if name == "table" and optimizer == "momentum" else Ellipsis
      rate = RATE[optimizer]
      if optimizer == "sgd":
        values[name] -= rate * mean
      elif optimizer == "momentum":
        first[name][here] = 0.9 * first[name][here] + mean[here]
        values[name][here] -= rate * first[name][here]
      else:
        first[name] = 0.9 * first[name] + 0.1 * mean
        second[name] = 0.999 * second[name] + 0.001 * mean ** 2
        values[name] -= rate * WEIGHT_DECAY[optimizer] * values[name]
        rate *= np.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        values[name] -= rate * first[name] / (np.sqrt(second[name]) + 1e-8)
  return values, np.mean(errors ** 2)


def check(values, optimizer, scale=1.0):
  """Holds trained variables against the reference."""
  expected, _ = train(optimizer, scale)
  assert set(values) == set(expected)
  for name, value in expected.items():
    np.testing.assert_allclose(values[name], value, rtol=0, atol=1e-5, err_msg=name)
