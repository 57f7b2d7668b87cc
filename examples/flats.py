"""Which flats are let within a week: a wide and deep classifier by `tf.estimator`, from a table.

This program for TensorFlow 1 does not import tf1ps. `tf1ps-run` runs it without changes, in one
process per task of `TF_CONFIG` (docs/drop_in.md#estimators). Without `TF_CONFIG` one process
trains and evaluates.
"""

import os

import tensorflow as tf
from absl import app, flags

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "flats.csv")
FIELDS = ["district", "street", "heating", "area", "rooms", "floor", "year", "rent", "let"]
DEFAULTS = [[""], [""], [""], [0.0], [0.0], [0.0], [0.0], [0.0], [0]]
DISTRICTS = ["harbour", "hill", "mill", "old town", "station"]
TESTED = 5  # every fifth row is for testing

flags.DEFINE_string("model_dir", "flats_model", "For checkpoints, summaries and exports.")
flags.DEFINE_string("data", DATA, "The table.")
flags.DEFINE_integer("max_steps", 600, "Global steps.")
flags.DEFINE_integer("batch_size", 32, "Rows.")
flags.DEFINE_integer("save_steps", 200, "From one checkpoint to the next.")
FLAGS = flags.FLAGS


def columns():
  """Returns the columns of the linear part, and those of the network."""
  number = tf.feature_column.numeric_column
  area = number("area", normalizer_fn=lambda value: value / 100.0)
  rent = number("rent", normalizer_fn=lambda value: value / 1000.0)
  decade = tf.feature_column.bucketized_column(number("year"), [1915, 1950, 1975, 1995])
  district = tf.feature_column.categorical_column_with_vocabulary_list("district", DISTRICTS)
  heating = tf.feature_column.categorical_column_with_vocabulary_list(
      "heating", ["gas", "oil", "district"], num_oov_buckets=1)
  street = tf.feature_column.categorical_column_with_hash_bucket("street", 100)
  place_and_age = tf.feature_column.crossed_column(["district", decade], 50)
  wide = [place_and_age, street, decade]
  deep = [area, rent, number("rooms"), number("floor"), tf.feature_column.indicator_column(heating),
          tf.feature_column.indicator_column(district),
          tf.feature_column.embedding_column(street, 4)]
  return wide, deep


def read(path, testing):
  """Reads the rows for testing, or the others: a dictionary of fields, and the label."""
  def is_chosen(number, unused_line):
    return tf.equal(tf.equal(number % TESTED, 0), testing)

  def parse(unused_number, line):
    fields = dict(zip(FIELDS, tf.decode_csv(line, DEFAULTS)))
    label = fields.pop("let")
    return fields, label

  lines = tf.data.TextLineDataset(path).skip(1)
  numbered = tf.data.Dataset.zip((tf.data.Dataset.range(2 ** 31), lines))
  return numbered.filter(is_chosen).map(parse)


def make_estimator():
  """Makes the classifier."""
  wide, deep = columns()
  return tf.estimator.DNNLinearCombinedClassifier(
      linear_feature_columns=wide, linear_optimizer=tf.train.FtrlOptimizer(0.02),
      dnn_feature_columns=deep, dnn_hidden_units=[32, 16],
      dnn_optimizer=tf.train.AdagradOptimizer(0.03),
      config=tf.estimator.RunConfig(
          model_dir=FLAGS.model_dir, tf_random_seed=1, save_checkpoints_steps=FLAGS.save_steps,
          keep_checkpoint_max=3, log_step_count_steps=100))


def make_specs(hooks=()):
  """Returns what to train on and what to evaluate on."""
  def train_input_fn():
    rows = read(FLAGS.data, testing=False).shuffle(500).repeat()
    return rows.batch(FLAGS.batch_size).prefetch(1)

  def eval_input_fn():
    return read(FLAGS.data, testing=True).batch(FLAGS.batch_size)

  wide, deep = columns()
  receive = tf.estimator.export.build_parsing_serving_input_receiver_fn(
      tf.feature_column.make_parse_example_spec(wide + deep))
  best = tf.estimator.BestExporter("best", receive, exports_to_keep=1)
  return (
      tf.estimator.TrainSpec(train_input_fn, max_steps=FLAGS.max_steps, hooks=hooks),
      tf.estimator.EvalSpec(eval_input_fn, steps=None, exporters=best, start_delay_secs=1,
                            throttle_secs=1))


def main(_):
  """Trains and evaluates, as the task that TF_CONFIG names."""
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.estimator.train_and_evaluate(make_estimator(), *make_specs())


if __name__ == "__main__":
  app.run(main)
