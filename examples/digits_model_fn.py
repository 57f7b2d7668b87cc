"""Handwritten digits by an estimator with a `model_fn` of its own: a convolutional network.

This program for TensorFlow 1 does not import tf1ps. `tf1ps-run` runs it without changes, in one
process per task of `TF_CONFIG` (docs/drop_in.md#estimators). With `--sync` each update takes one
gradient of
each worker. A longer training (--max_steps) ends early when the accuracy on the test rows has not
risen for 1,000 steps.
"""

import handwritten_digits
import numpy as np
import tensorflow as tf
from absl import app, flags

SIDE, DIGITS, WHITE = 8, 10, 16.0  # pixels, classes, the largest value of a pixel


flags.DEFINE_string("model_dir", "digits_model", "For checkpoints, summaries and exports.")
flags.DEFINE_integer("max_steps", 600, "Global steps.")
flags.DEFINE_integer("batch_size", 64, "Images.")
flags.DEFINE_float("learning_rate", 0.005, "Of Adam.")
flags.DEFINE_bool("sync", False, "One gradient of each worker per update.")
FLAGS = flags.FLAGS


def read(mode):
  """Returns the features, images [rows, 64], and the labels [rows] of "train" or "eval"."""
  data = handwritten_digits.read(mode)
  return {"image": data.images.astype(np.float32)}, data.labels


def model_fn(features, labels, mode, params, config):
  """The network, its loss, its metrics and its update."""
  is_training = mode == tf.estimator.ModeKeys.TRAIN
  net = tf.reshape(features["image"] / WHITE, [-1, SIDE, SIDE, 1])
  net = tf.layers.conv2d(net, 16, 3, activation=tf.nn.relu)
  net = tf.layers.max_pooling2d(net, 2, 2)
  net = tf.layers.dense(tf.layers.flatten(net), 64, activation=tf.nn.relu)
  logits = tf.layers.dense(tf.layers.dropout(net, 0.2, training=is_training), DIGITS)
  predictions = {"digit": tf.argmax(logits, 1), "probabilities": tf.nn.softmax(logits)}
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode, predictions, export_outputs={
      "serving_default": tf.estimator.export.PredictOutput(predictions)})
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  accuracy = tf.metrics.accuracy(labels, predictions["digit"])
  if mode == tf.estimator.ModeKeys.EVAL:
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
  tf.summary.scalar("accuracy", accuracy[1])
  optimizer, hooks = tf.train.AdamOptimizer(params["learning_rate"]), []
  if params["sync"]:
    replicas = config.num_worker_replicas
    optimizer = tf.train.SyncReplicasOptimizer(optimizer, replicas, total_num_replicas=replicas)
    hooks.append(optimizer.make_session_run_hook(config.is_chief))
  train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=hooks)


def main(_):
  """Trains and evaluates, as the task that TF_CONFIG names."""
  tf.logging.set_verbosity(tf.logging.INFO)
  estimator = tf.estimator.Estimator(
    model_fn, params={"learning_rate": FLAGS.learning_rate, "sync": FLAGS.sync},
    config=tf.estimator.RunConfig(
      model_dir=FLAGS.model_dir, save_checkpoints_steps=100, log_step_count_steps=100))
  train_input_fn = tf.estimator.inputs.numpy_input_fn(
    *read("train"), batch_size=FLAGS.batch_size, num_epochs=None, shuffle=True)
  eval_input_fn = tf.estimator.inputs.numpy_input_fn(
    *read("eval"), num_epochs=1, shuffle=False)
  receive = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {"image": tf.placeholder(tf.float32, [None, SIDE * SIDE])})
  early = tf.estimator.experimental.stop_if_no_increase_hook(
    estimator, "accuracy", max_steps_without_increase=1000, run_every_secs=None,
    run_every_steps=100)
  tf.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(train_input_fn, FLAGS.max_steps, hooks=[early]),
    tf.estimator.EvalSpec(eval_input_fn, steps=None, start_delay_secs=1, throttle_secs=1,
                          exporters=tf.estimator.FinalExporter("last", receive)))


if __name__ == "__main__":
  app.run(main)
