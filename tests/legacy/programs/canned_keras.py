"""A canned estimator with an optimizer of Keras; chief and evaluator export it."""
from __future__ import print_function

import argparse

import numpy as np
import tensorflow as tf


def make_input_fn(size, seed, repeat):
  def input_fn():
    x = np.random.RandomState(seed).uniform(-1, 1, (size, 3)).astype(np.float32)
    features = {"a": x[:, 0], "b": x[:, 1], "kind": np.where(x[:, 2] > 0, "new", "old")}
    labels = (x[:, 0] + x[:, 1] + (x[:, 2] > 0) > 0.5).astype(np.int32)
    dataset = tf.data.Dataset.from_tensor_slices((features, labels))
    if repeat:
      dataset = dataset.shuffle(size).repeat()
    return dataset.batch(32)
  return input_fn


def main():
  parser = argparse.ArgumentParser()
  parser.add_argument("--model_dir", required=True)
  parser.add_argument("--max_steps", type=int, default=300)
  args = parser.parse_args()
  tf.logging.set_verbosity(tf.logging.INFO)

  kind = tf.feature_column.categorical_column_with_vocabulary_list("kind", ["new", "old"])
  columns = [tf.feature_column.numeric_column("a"), tf.feature_column.numeric_column("b"),
             tf.feature_column.indicator_column(kind)]
  estimator = tf.estimator.DNNClassifier(
      hidden_units=[8, 4], feature_columns=columns, n_classes=2, model_dir=args.model_dir,
      optimizer=tf.keras.optimizers.Adam(learning_rate=0.01),
      config=tf.estimator.RunConfig(save_checkpoints_steps=100, tf_random_seed=1))

  receiver_fn = tf.estimator.export.build_parsing_serving_input_receiver_fn(
      tf.feature_column.make_parse_example_spec(columns))
  exporter = tf.estimator.LatestExporter("last", receiver_fn)
  tf.estimator.train_and_evaluate(
      estimator,
      tf.estimator.TrainSpec(make_input_fn(512, 0, True), max_steps=args.max_steps),
      tf.estimator.EvalSpec(make_input_fn(128, 1, False), steps=None, exporters=exporter,
                            start_delay_secs=1, throttle_secs=1))
  if estimator.config.task_type in ("chief", "evaluator"):
    estimator.export_saved_model(args.model_dir + "/export/final", receiver_fn)
    print("exported")


if __name__ == "__main__":
  main()
