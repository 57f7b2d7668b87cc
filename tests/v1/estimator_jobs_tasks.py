"""The tasks of jobs of tf.estimator that are killed, come late, train together, or move.

As a script: `python -m tests.v1.estimator_jobs_tasks FOLDER LAST_STEP` trains, and with a
folder alone it asks the SavedModel there.
"""
from __future__ import annotations

import json
import os
import sys
import threading

from tests.v1 import estimator_tasks

STEPS = 200
TOGETHER = 20  # updates of the synchronous job
GRADIENTS = [1.0, 2.0, 6.0]  # of its replicas; their mean is 3
HELD_AT = 100  # who is here waits until the test has done what it wants to do


def train_paced(cluster, job, index, folder):
  """A task of a cluster by TF_CONFIG: trains the plane, slowly until the file `go` is there."""
  _set_task(cluster, job, index)
  import tf1ps.v1 as tf
  tf.logging.set_verbosity(tf.logging.INFO)
  tf.estimator.train_and_evaluate(
    estimator_tasks.make(os.path.join(folder, "model"), experimental_max_worker_delay_secs=0),
    tf.estimator.TrainSpec(estimator_tasks.input_fn, max_steps=STEPS,
                           hooks=[_pace(tf, os.path.join(folder, "go"))]),
    tf.estimator.EvalSpec(lambda: estimator_tasks.input_fn(1), start_delay_secs=0,
                          throttle_secs=0))


def _set_task(cluster, job, index):
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})


def _pace(tf, go):
  """Returns a hook that says each step, and pauses as long as there is no file `go`."""
  class Pace(tf.train.SessionRunHook):
    def before_run(self, run_context):
      return tf.train.SessionRunArgs(tf.train.get_global_step())

    def after_run(self, run_context, run_values):
      step = int(run_values.results)
      if os.path.exists(go):
        return
      print("made step %d" % step, flush=True)
      pause = threading.Event()
      pause.wait(0.02)
      while step >= HELD_AT and not os.path.exists(go):
        pause.wait(0.02)

  return Pace()


def train_together(cluster, job, index, folder):
  """A task of a synchronous job: the gradient of each replica is a number of its own."""
  _set_task(cluster, job, index)
  import tf1ps.v1 as tf
  tf.logging.set_verbosity(tf.logging.INFO)

  def model_fn(features, mode, config):
    weight = tf.get_variable("weight", [], initializer=tf.zeros_initializer())
    replica = 0 if config.is_chief else 1 + config.task_id
    loss = weight * GRADIENTS[replica]
    if mode == tf.estimator.ModeKeys.EVAL:
      return tf.estimator.EstimatorSpec(mode, loss=loss)
    optimizer = tf.train.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(1.0), config.num_worker_replicas,
      total_num_replicas=config.num_worker_replicas)
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=train_op,
      training_hooks=[optimizer.make_session_run_hook(config.is_chief)])

  def input_fn():
    return tf.data.Dataset.from_tensors({"unused": [0.0]}).repeat(TOGETHER + 2)

  estimator = tf.estimator.Estimator(model_fn, config=tf.estimator.RunConfig(
    model_dir=os.path.join(folder, "model"), experimental_max_worker_delay_secs=0))
  tf.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(input_fn, max_steps=TOGETHER),
    tf.estimator.EvalSpec(input_fn, steps=1, start_delay_secs=0))


def run_program(cluster, job, index, argv):
  """A task of a cluster by TF_CONFIG, by tf1ps-run."""
  _set_task(cluster, job, index)
  from tf1ps.cli import run
  return run.run(argv)


def answer_in_plain_tensorflow(folder):
  """Asks an exported model of flats; prints the probabilities."""
  import tensorflow as tf
  example = tf.train.Example()
  for name, value in {"district": b"mill", "street": b"Oak Lane", "heating": b"gas"}.items():
    example.features.feature[name].bytes_list.value.append(value)
  for name, value in {"area": 60, "rooms": 3, "floor": 1, "year": 1990, "rent": 400}.items():
    example.features.feature[name].float_list.value.append(value)
  model = tf.saved_model.load(folder).signatures["serving_default"]
  scores = model(inputs=tf.constant([example.SerializeToString()]))["scores"]
  assert not [name for name in sys.modules if name.split(".")[0] == "tf1ps"]
  print("scores: " + json.dumps(scores.numpy().tolist()))


def train_to(folder, last_step):
  """Trains one model_fn up to a global step; prints the loss and the variables' checksums."""
  import numpy as np

  import tf1ps.v1 as tf
  estimator = tf.estimator.Estimator(
    columns_model_fn, model_dir=folder, config=tf.estimator.RunConfig(
      save_checkpoints_steps=100, session_config=tf.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)))
  estimator.train(columns_input_fn, max_steps=last_step)
  found = {"loss": float(estimator.evaluate(columns_input_fn, steps=1)["loss"])}
  for name in estimator.get_variable_names():
    value = np.ravel(estimator.get_variable_value(name)).astype(np.float64)
    found[name] = float(np.mean(value * np.linspace(1, 2, np.size(value))))
  print("found: " + json.dumps(found), flush=True)


def columns_input_fn():
  """One batch, over and over."""
  import tf1ps.v1 as tf
  features = {"city": tf.constant(["Ulm", "Bonn", "Ulm", "Kiel", "Trier", "Bonn"]),
              "rooms": tf.constant([1.0, 2.0, 3.0, 4.0, 2.0, 5.0]),
              "year": tf.constant([1900.0, 1950.0, 1990.0, 2010.0, 1970.0, 1930.0])}
  return tf.data.Dataset.from_tensors(
    (features, tf.constant([[0.3], [0.5], [1.1], [1.5], [0.6], [1.4]]))).repeat()


def columns_model_fn(features, labels, mode):
  """Columns of all kinds, two layers, Adam."""
  import tf1ps.v1 as tf
  column = tf.feature_column
  city = column.categorical_column_with_vocabulary_list(
    "city", ["Ulm", "Bonn", "Kiel"], num_oov_buckets=1)
  decade = column.bucketized_column(column.numeric_column("year"), [1945, 1980])
  street = column.categorical_column_with_hash_bucket("city", 7)
  crossed = column.crossed_column(["city", decade], 11)

  def embedded(of, seed):
    return column.embedding_column(of, 3, initializer=tf.glorot_uniform_initializer(seed=seed))

  inputs = column.input_layer(features, [
    column.numeric_column("rooms"), decade, column.indicator_column(city), embedded(street, 1),
    embedded(crossed, 2)])
  net = tf.layers.dense(inputs, 5, tf.nn.relu,
                        kernel_initializer=tf.glorot_uniform_initializer(seed=3))
  net = tf.layers.dense(net, 1, kernel_initializer=tf.glorot_uniform_initializer(seed=4))
  loss = tf.losses.mean_squared_error(labels, net + column.linear_model(features, [crossed]))
  train_op = tf.train.AdamOptimizer(0.003).minimize(loss, tf.train.get_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


if __name__ == "__main__":
  if len(sys.argv) == 2:
    answer_in_plain_tensorflow(sys.argv[1])
  else:
    train_to(sys.argv[1], int(sys.argv[2]))
