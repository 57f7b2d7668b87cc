"""An Experiment of contrib.learn with the columns of contrib.layers. TF_CONFIG names no chief, and
RunConfig names this task's address."""
from __future__ import print_function

import argparse
import json
import os

import numpy as np
import tensorflow as tf
from tensorflow.contrib.learn.python.learn import learn_runner
from tensorflow.contrib.learn.python.learn.estimators import run_config as run_config_lib

CONTRACTS = ["month", "year", "none"]


def make_columns():
  layers = tf.contrib.layers
  age = layers.real_valued_column("age", normalizer=lambda x: x / 60.0)
  contract = layers.sparse_column_with_keys("contract", keys=CONTRACTS)
  city = layers.sparse_column_with_hash_bucket("city", hash_bucket_size=20)
  return [age, layers.bucketized_column(layers.real_valued_column("age"), [20.0, 30.0, 50.0]),
          layers.one_hot_column(contract),
          layers.embedding_column(city, dimension=3),
          layers.embedding_column(
              layers.crossed_column([contract, city], hash_bucket_size=50), dimension=2)]


def input_fn(size=256, seed=0):
  rng = np.random.RandomState(seed)
  age = rng.uniform(15, 65, (size, 1)).astype(np.float32)
  contract = rng.choice(CONTRACTS, size)
  city = rng.choice(["a", "b", "c", "d"], size)
  stays = ((age[:, 0] > 40) & (contract != "none")).astype(np.int64)
  features = {"age": tf.constant(age), "contract": tf.constant(contract[:, None]),
              "city": tf.constant(city[:, None])}
  return features, tf.constant(stays)


def model_fn(features, labels, mode, params):
  net = tf.contrib.layers.input_from_feature_columns(features, make_columns())
  net = tf.contrib.layers.fully_connected(net, params.hidden_units)
  logits = tf.contrib.layers.fully_connected(net, 2, activation_fn=None)
  predictions = tf.argmax(logits, 1)
  if mode == tf.contrib.learn.ModeKeys.INFER:
    return tf.estimator.EstimatorSpec(mode, predictions={"stays": predictions})
  loss = tf.losses.sparse_softmax_cross_entropy(labels, logits)
  train_op = tf.contrib.layers.optimize_loss(
      loss, tf.train.get_global_step(), params.learning_rate, "Adam", summaries=[])
  return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=train_op,
      eval_metric_ops={"accuracy": tf.metrics.accuracy(labels, predictions)})


def experiment_fn(run_config, hparams):
  return tf.contrib.learn.Experiment(
      tf.estimator.Estimator(model_fn, config=run_config, params=hparams),
      train_input_fn=input_fn, eval_input_fn=lambda: input_fn(seed=1),
      train_steps=hparams.max_steps, eval_steps=1, eval_delay_secs=0,
      continuous_eval_throttle_secs=1)


def main(unused_argv):
  parser = argparse.ArgumentParser()
  parser.add_argument("--model_dir", required=True)
  parser.add_argument("--max_steps", type=int, default=300)
  args = parser.parse_args()
  tf.logging.set_verbosity(tf.logging.INFO)
  tf_config = json.loads(os.environ["TF_CONFIG"])
  job, index = tf_config["task"]["type"], tf_config["task"]["index"]
  addresses = tf_config["cluster"].get(job)
  master = "grpc://" + addresses[index] if addresses else None
  config = run_config_lib.RunConfig(
      master=master, model_dir=args.model_dir, save_checkpoints_steps=100)
  print("%s %d: chief %s, %d ps" % (job, index, config.is_chief, config.num_ps_replicas))
  learn_runner.run(
      experiment_fn=experiment_fn, run_config=config, hparams=tf.contrib.training.HParams(
          hidden_units=8, learning_rate=0.01, max_steps=args.max_steps))
  print("done")


if __name__ == "__main__":
  tf.app.run()
