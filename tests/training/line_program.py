"""The program of this room's tests: y = w x + b over ten rows, with exact numbers.

x is 0 to 9 and y is 2 x + 1; a test chooses w and b. In mode "eval" and "predict" the rows come in
batches of the shard's size, so that with a size of 4 the last batch has two.
"""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.checkpoint import checkpoints

X = np.arange(10, dtype=np.float32)
Y = 2 * X + 1


def input_fn(mode, shard):
  rows = shard.dataset(tf.data.Dataset.from_tensor_slices(({"x": X}, Y)))
  return tf.data.make_one_shot_iterator(rows.batch(shard.batch_size)).get_next()


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  b = tf.Variable(0., name="b")
  y = w * features["x"] + b
  predictions = {"y": y, "pair": tf.stack([y, -y], axis=1), "even": tf.equal(y % 2, 0)}
  if mode == "predict":
    return tf1ps.ModelSpec(predictions=predictions)
  return tf1ps.ModelSpec(
    loss=tf.reduce_mean(tf.square(y - labels)),
    predictions=predictions,
    metrics={"bias": tf.metrics.mean(y - labels), "worst": tf.metrics.mean(tf.abs(y - labels))})


def save(directory, step, w, b, keep=None, **more):
  """Saves a checkpoint with these values, of which `keep` stay; returns its path."""
  with tf.Graph().as_default():
    tf.get_variable("w", [], initializer=tf.constant_initializer(w))
    tf.get_variable("b", [], initializer=tf.constant_initializer(b))
    for name, value in more.items():
      tf.get_variable(name, initializer=tf.constant(value))
    set_step = tf.train.get_or_create_global_step().assign(step)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(set_step)
      saver = tf.train.Saver(max_to_keep=keep)
      saver.set_last_checkpoints_with_time(
        [(path, 0.) for path in checkpoints.listed_checkpoints(str(directory))])
      return saver.save(session, str(directory / "model.ckpt"), global_step=step,
                        write_meta_graph=False)
