"""What tests of tf.estimator run as processes: they import tf1ps.v1, which chooses graph mode."""
from __future__ import annotations

import json
import logging
import os

STEPS, BATCH = 60, 8


def input_fn(batches=None):
  """Batches of a plane: y = 2 a - b + 1."""
  import tf1ps.v1 as tf
  a = tf.constant([[0.0], [1.0], [0.0], [1.0], [2.0], [1.0], [0.5], [3.0]])
  b = tf.constant([[0.0], [0.0], [1.0], [1.0], [1.0], [2.0], [0.5], [1.0]])
  return tf.data.Dataset.from_tensors(({"a": a, "b": b}, 2 * a - b + 1)).repeat(batches)


def model_fn(features, labels, mode, params):
  """A layer without a hidden one, trained by Adam."""
  import tf1ps.v1 as tf
  x = tf.concat([features["a"], features["b"]], 1)
  predicted = tf.layers.dense(x, 1, name="plane", kernel_initializer=tf.zeros_initializer())
  if mode == tf.estimator.ModeKeys.PREDICT:
    return tf.estimator.EstimatorSpec(mode, predictions={"y": predicted}, export_outputs={
      "serving_default": tf.estimator.export.PredictOutput({"y": predicted})})
  loss = tf.losses.mean_squared_error(labels, predicted)
  if mode == tf.estimator.ModeKeys.EVAL:
    return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops={
      "error": tf.metrics.mean_absolute_error(labels, predicted)})
  optimizer = tf.train.AdamOptimizer(params["rate"])
  train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
  return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)


def make(model_dir, **config):
  """An estimator of the plane."""
  import tf1ps.v1 as tf
  config = {"save_checkpoints_steps": 20, "tf_random_seed": 1, **config}
  return tf.estimator.Estimator(
    model_fn, params={"rate": 0.1}, config=tf.estimator.RunConfig(model_dir=model_dir, **config))


def train_as(cluster, job, index, model_dir, steps=STEPS, batches=None, delay=0):
  """A task of a cluster by TF_CONFIG; says its result."""
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
  import tf1ps.v1 as tf
  tf.logging.set_verbosity(tf.logging.INFO)
  receive = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {name: tf.placeholder(tf.float32, [None, 1]) for name in ("a", "b")})
  exporter = tf.estimator.FinalExporter("last", receive)
  tf.estimator.train_and_evaluate(
    make(model_dir, experimental_max_worker_delay_secs=delay),
    tf.estimator.TrainSpec(lambda: input_fn(batches), max_steps=steps),
    tf.estimator.EvalSpec(lambda: input_fn(1), start_delay_secs=0, throttle_secs=600,
                          exporters=exporter))
  print("has ended", flush=True)


def train_here(model_dir):
  """One process: trains with evaluations, predicts, and says what came out."""
  import tf1ps.v1 as tf
  estimator = make(model_dir)
  metrics, exported = tf.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(input_fn, max_steps=STEPS),
    tf.estimator.EvalSpec(lambda: input_fn(1), throttle_secs=0))
  predicted = [float(one["y"][0]) for one in estimator.predict(lambda: input_fn(1))]
  print(json.dumps({
    "metrics": {name: float(value) for name, value in metrics.items()}, "exported": exported,
    "predicted": predicted, "steps": sorted(
      int(path.split("-")[-1]) for path in tf.train.get_checkpoint_state(
        model_dir).all_model_checkpoint_paths)}))


def refused(call):
  """Returns the text of the ValueError that a call raises."""
  try:
    call()
  except ValueError as error:
    return str(error)
  raise AssertionError("it was not refused")


def refusals():
  """What is refused, with what to do."""
  import tf1ps.v1 as tf
  run_config, options = tf.estimator.RunConfig, tf.estimator.set_options
  strategy = type("ParameterServerStrategy", (), {})()
  assert "Leave train_distribute and eval_distribute out" in refused(
    lambda: run_config(train_distribute=strategy))
  os.environ["TF_CONFIG"] = json.dumps({
    "cluster": {"chief": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]},
    "task": {"type": "chief", "index": 0}})
  assert "a OneDeviceStrategy" in refused(
    lambda: run_config(train_distribute=tf.distribute.OneDeviceStrategy("/cpu:0")))
  assert "no option pack. The options are pack_bytes" in refused(lambda: options(pack=1))
  assert "ps_strategy='best' must be one of greedy" in refused(lambda: options(ps_strategy="best"))
  assert "pack_bytes=-1 must be 0, which packs nothing, or more" in refused(
    lambda: options(pack_bytes=-1))
  for value in (2.5, "2.5", None):
    assert "pack_bytes=%r must be a whole number" % (value,) in refused(
      lambda value=value: options(pack_bytes=value))
  assert "start_timeout='soon' must be a number" in refused(lambda: options(start_timeout="soon"))
  assert "steps_per_execution='2' must be auto or 1" in refused(
    lambda: options(steps_per_execution="2"))
  assert "max_lead:N, drop:N or both" in refused(lambda: options(staleness_policy="damp"))
  os.environ["TF1PS_END_TIMEOUT"] = "0"
  assert "TF1PS_END_TIMEOUT='0' must be a positive number of seconds" in refused(
    lambda: options(pack_bytes=0))


def without_the_package():
  """Where tensorflow-estimator is not installed."""
  import importlib.util
  find_spec = importlib.util.find_spec
  importlib.util.find_spec = lambda name, *args: (
    None if name == "tensorflow_estimator" else find_spec(name, *args))
  import tf1ps.v1 as tf
  from tests.v1.namespace_tasks import refusal
  assert "pip install 'tf1ps[legacy]'" in refusal(tf.estimator, "Estimator")


def another_release_of_the_package():
  """A release without a private function that tf1ps replaces."""
  import importlib

  import tf1ps.v1 as tf
  package = importlib.import_module("tensorflow_estimator.python.estimator.estimator")
  del package._get_replica_device_setter
  try:
    tf.estimator.Estimator  # noqa: B018
  except ImportError as error:
    assert "tensorflow-estimator has no _get_replica_device_setter, which tf1ps" in str(error)
  else:
    raise AssertionError("it was not refused")


def train_often(cluster, job, index, model_dir, ends):
  """A task that makes its own server, and whose program trains again and again."""
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
  import tf1ps.v1 as tf
  from tf1ps.session import end_open_sessions
  server = tf.train.Server(cluster, job, index)
  if job == "ps":
    server.join()
  estimator = make(model_dir)
  for max_steps in ends:
    estimator.train(input_fn, max_steps=max_steps)
    if job == "chief":
      print("evaluated", estimator.evaluate(lambda: input_fn(1))["global_step"], flush=True)
  end_open_sessions()  # as at the end of a program: a forked process leaves it out


def train_in_long_runs(cluster, job, index, model_dir, last_step, batches, wraps=False):
  """Follows the numbers 0, 1, 2, ... a tenth of the way each; soon a run makes 16 steps.

  With `wraps`, another estimator's model_fn calls that of the first one.
  """
  os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": index}})
  import tf1ps.v1 as tf
  from tf1ps.transfer import run_length
  for name, value in (("_SKIPPED", 1), ("_RUNS", 3), ("_STEPS", 3), ("_SECONDS", 0.0),
                      ("_GAIN", 1e9), ("_CLEAR_GAIN", 1e9), ("_RUN", 1e9),
                      ("_PER_RUN", 1e9), ("_MOST_COST", 1e9)):
    setattr(run_length, name, value)
  tf.logging.set_verbosity(tf.logging.INFO)
  logging.basicConfig(level=logging.INFO)

  def follow(features, mode):
    place = tf.get_variable("place", [], initializer=tf.zeros_initializer())
    loss = 0.5 * tf.square(features - place)
    return tf.estimator.EstimatorSpec(
      mode, loss=loss, train_op=tf.train.GradientDescentOptimizer(0.1).minimize(
        loss, tf.train.get_global_step()))

  estimator = tf.estimator.Estimator(follow, config=tf.estimator.RunConfig(
    model_dir=model_dir, save_checkpoints_steps=50, log_step_count_steps=40))
  if wraps:
    estimator = tf.estimator.add_metrics(estimator, lambda features: {})

  def numbers():
    return tf.data.Dataset.range(batches).map(lambda number: tf.cast(number, tf.float32))

  tf.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(numbers, max_steps=last_step),
    tf.estimator.EvalSpec(numbers, steps=1))
