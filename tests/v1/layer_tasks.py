"""Layers, cells and functions whose numbers and names must be those of TensorFlow 1.15."""
from __future__ import annotations

import json
import zlib

import numpy as np


def cases():
  """Returns {name: (shape of the input, function of the input)}."""
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib import layers, lookup, opt, rnn, seq2seq, slim
  cell = tf.nn.rnn_cell
  images, sequence = [2, 4, 4, 3], [2, 3, 4]

  def run(*cells):
    one = cells[0] if len(cells) == 1 else cell.MultiRNNCell(list(cells))
    return lambda x: tf.nn.dynamic_rnn(one, x, dtype=tf.float32)

  def loss(**how):
    return lambda x: seq2seq.sequence_loss(
        x, tf.constant([[0, 1, 2], [3, 0, 1]]), tf.constant([[1., 1, 0], [1, .5, 1]]), **how)

  def train(make_optimizer):
    def build(x):
      dense, sparse = tf.get_variable("dense", [3]), tf.get_variable("sparse", [4, 2])
      rows = tf.nn.embedding_lookup(sparse, [1, 2, 1])
      update = make_optimizer().minimize(tf.reduce_sum(dense * x[0]) + tf.reduce_sum(rows))
      with tf.control_dependencies([update]):
        return [dense.read_value(), sparse.read_value()]
    return [2, 3], build

  def tables(x):
    words, integers = tf.constant(["b", "c", "hello"]), tf.constant([9, 1, 2, 3], tf.int64)
    found = [
      lookup.index_table_from_tensor(["a", "b"], num_oov_buckets=5).lookup(words),
      lookup.index_table_from_tensor(["a", "b"], default_value=7).lookup(words),
      lookup.index_table_from_tensor(
          tf.constant([5, 9]), num_oov_buckets=3, dtype=tf.int64).lookup(integers),
      tf.equal(lookup.index_to_string_table_from_tensor(["a", "b"]).lookup(integers), "UNK"),
      lookup.HashTable(
          lookup.KeyValueTensorInitializer(["x", "b"], [4, 5]), -1, "shared").lookup(words)]
    return [tf.cast(values, tf.float32) for values in found]

  return {
    "dense": (images, lambda x: tf.layers.dense(x, 4, tf.nn.relu)),
    "two dense": (images, lambda x: tf.layers.dense(tf.layers.dense(x, 4), 2, name="out")),
    "conv2d": (images, lambda x: tf.layers.conv2d(x, 4, 3, padding="same")),
    "pooling": (images, lambda x: tf.layers.max_pooling2d(tf.layers.conv2d(x, 4, 3), 2, 2)),
    "batch normalization, training": (
        images, lambda x: tf.layers.batch_normalization(x, training=True)),
    "batch normalization": (images, lambda x: tf.layers.batch_normalization(x)),
    "batch normalization of vectors": (
        [5, 3], lambda x: tf.layers.batch_normalization(x, training=True)),
    "dropout, training": (images, lambda x: tf.layers.dropout(x, 0.5, seed=3, training=True)),
    "dropout": (images, tf.layers.dropout),
    "LSTM": (sequence, run(cell.LSTMCell(4))),
    "basic LSTM": (sequence, run(cell.BasicLSTMCell(4))),
    "GRU": (sequence, run(cell.GRUCell(4))),
    "layers of LSTM": (sequence, run(cell.DropoutWrapper(cell.LSTMCell(4)), cell.LSTMCell(4))),
    "static": (sequence, lambda x: rnn.static_rnn(
        rnn.BasicLSTMCell(4), tf.unstack(x, axis=1), dtype=tf.float32)),
    "bidirectional": (sequence, lambda x: tf.nn.bidirectional_dynamic_rnn(
        rnn.LSTMCell(4), rnn.LSTMCell(4), x, dtype=tf.float32)),
    "stack": (sequence, lambda x: rnn.stack_bidirectional_dynamic_rnn(
        [rnn.LSTMCell(4), rnn.GRUCell(2)], [rnn.LSTMCell(4), rnn.GRUCell(2)], x,
        dtype=tf.float32)),
    "slim.conv2d": (images, lambda x: slim.conv2d(
        x, 4, 3, normalizer_fn=slim.batch_norm, normalizer_params={"is_training": True})),
    "slim.batch_norm": (images, lambda x: slim.batch_norm(x, scale=True)),
    "slim.batch_norm of vectors": ([5, 3], lambda x: slim.batch_norm(x, updates_collections=None)),
    "fully_connected": (images, lambda x: layers.fully_connected(layers.flatten(x), 4)),
    "layer_norm": (images, layers.layer_norm),
    "embed_sequence": (sequence, lambda x: layers.embed_sequence([[1, 2], [3, 0]], 5, 4)),
    "embed_sequence, unique": (
        sequence, lambda x: layers.embed_sequence([[1, 1], [3, 0]], 5, 4, unique=True)),
    "optimize_loss": (images, lambda x: layers.optimize_loss(
        tf.reduce_mean(slim.fully_connected(x, 2)), tf.train.get_or_create_global_step(), 0.1,
        "Adam", clip_gradients=1.0)),
    "create_train_op": (images, lambda x: slim.learning.create_train_op(
        tf.reduce_mean(slim.fully_connected(x, 2)), tf.train.GradientDescentOptimizer(0.1))),
    "sequence_loss": (sequence, loss()),
    "sequence_loss by step": (sequence, loss(average_across_timesteps=False)),
    "sequence_loss, summed": (sequence, loss(
        average_across_timesteps=False, average_across_batch=False, sum_over_timesteps=True)),
    "tile_batch": (sequence, lambda x: seq2seq.tile_batch([x, x[:, 0]], 2)),
    "hardmax": (sequence, lambda x: seq2seq.hardmax(x[:, 0])),
    "transpose_batch_time": (sequence, rnn.transpose_batch_time),
    "AdamW": train(lambda: opt.AdamWOptimizer(0.1, learning_rate=0.1)),
    "MomentumW": train(lambda: opt.MomentumWOptimizer(0.1, 0.1, 0.9)),
    "weight decay": train(lambda: opt.extend_with_decoupled_weight_decay(
        tf.train.AdagradOptimizer)(weight_decay=0.1, learning_rate=0.1)),
    "tables": (sequence, tables),
  }


def show_all():
  """Prints {case: names of the variables, trainable ones first, and the outputs' checksums}."""
  print("cases: " + json.dumps({
    name: outcome(shape, build) for name, (shape, build) in cases().items()}), flush=True)


def outcome(shape, build):
  import tf1ps.v1 as tf
  with tf.Graph().as_default():
    tf.set_random_seed(1)
    outputs = tf.nest.flatten(build(tf.constant(_numbers("input", shape) * 2 - 1)))
    with tf.Session() as session:
      session.run([tf.global_variables_initializer(), tf.tables_initializer()])
      for variable in tf.global_variables():
        if variable.dtype.base_dtype == tf.float32:
          variable.load(_numbers(variable.op.name, variable.shape.as_list()), session)
      values = session.run(outputs)
      session.run(tf.get_collection(tf.GraphKeys.UPDATE_OPS))
      values += session.run([variable for variable in tf.global_variables()
                             if "moving" in variable.op.name])
    trainable = tf.trainable_variables()
    others = [variable for variable in tf.global_variables() if variable not in trainable]
    return [variable.op.name for variable in trainable + others], [_checksum(v) for v in values]


def _numbers(name, shape):
  """Returns numbers from 0.1 to 1 that depend on a name only."""
  random = np.random.RandomState(zlib.crc32(name.encode()))
  return random.uniform(0.1, 1.0, shape).astype(np.float32)


def _checksum(values):
  """Returns a number that changes with each value and with their order."""
  values = np.ravel(values).astype(np.float64)
  return round(float(np.mean(values * np.linspace(1, 2, len(values)))), 6)
