"""Shapes of legacy programs with estimators, run as processes by estimator_shapes_test."""
from __future__ import annotations

import itertools
import json
import os

import numpy as np

from tests.v1.estimator_tasks import STEPS, input_fn, make, model_fn


def run_experiment(model_dir, cluster=None, job=None):
  """learn_runner.run with an Experiment, alone or as a task of a cluster."""
  if cluster:
    os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": {"type": job, "index": 0}})
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib.learn.python.learn import learn_runner
  from tf1ps.v1.contrib.learn.python.learn.utils import saved_model_export_utils
  receive = tf.estimator.export.build_raw_serving_input_receiver_fn(
    {name: tf.placeholder(tf.float32, [None, 1]) for name in ("a", "b")})

  def experiment_fn(run_config, hparams):
    estimator = tf.estimator.Estimator(
      model_fn, params=hparams.values(), config=run_config.replace(save_checkpoints_steps=20))
    return tf.contrib.learn.Experiment(
      estimator, train_input_fn=input_fn, eval_input_fn=lambda: input_fn(1), train_steps=STEPS,
      eval_steps=None, min_eval_frequency=20, eval_delay_secs=0, continuous_eval_throttle_secs=1,
      export_strategies=[saved_model_export_utils.make_export_strategy(receive)])

  result = learn_runner.run(
    experiment_fn, run_config=tf.contrib.learn.RunConfig(
      model_dir=model_dir, tf_random_seed=1, gpu_memory_fraction=0.5,
      experimental_max_worker_delay_secs=0),
    hparams=tf.contrib.training.HParams(rate=0.1))
  if cluster:
    return
  metrics, exported = result
  assert metrics["global_step"] == STEPS and abs(metrics["error"] - 0.0739977) < 1e-6, metrics
  assert [os.path.exists(os.path.join(path, b"saved_model.pb")) for path in exported] == [True]


def other_schedules(model_dir):
  """Training and evaluation in turns; and what is refused."""
  import tf1ps.v1 as tf
  seen = []

  def go_on(metrics):
    seen.append(metrics and int(metrics["global_step"]))
    return len(seen) < 3

  hook = tf.train.StepCounterHook(every_n_steps=1000)
  experiment = tf.contrib.learn.Experiment(
    make(model_dir), input_fn, lambda: input_fn(1), eval_steps=1, train_steps_per_iteration=5,
    export_strategies=[
      tf.contrib.learn.ExportStrategy(
        "own", lambda estimator, path, checkpoint_path, eval_result, strip_default_attrs: [
          path, checkpoint_path, int(eval_result["global_step"]), strip_default_attrs], True),
      tf.contrib.learn.ExportStrategy("plain", lambda estimator, path: path)])
  experiment.extend_train_hooks([hook])
  metrics, exported = experiment.continuous_train_and_eval(go_on)
  assert seen == [None, 5, 10] and metrics["global_step"] == 10
  assert exported == [[model_dir + "/export/own", model_dir + "/model.ckpt-10", 10, True],
                      model_dir + "/export/plain"]
  assert experiment.test()["global_step"] == 11
  for refused, text in (
      (lambda: tf.contrib.learn.RunConfig(master="grpc://a:1"), "name the cluster in TF_CONFIG"),
      (lambda: tf.contrib.learn.learn_runner.run(lambda: None), "run_config or output_dir"),
      (lambda: tf.contrib.learn.learn_runner.run(
        lambda output_dir: experiment, model_dir, "tune"), "no schedule 'tune'"),
      (lambda: tf.contrib.learn.learn_runner.run(lambda output_dir: 5, model_dir),
       "returned 5, not a tf.contrib.learn.Experiment"),
      (experiment.continuous_eval, "needs a cluster")):
    try:
      refused()
    except (TypeError, ValueError) as error:
      assert text in str(error)
    else:
      raise AssertionError(text)
  assert callable(tf.contrib.estimator.stop_if_no_decrease_hook)
  assert tf.contrib.learn.ModeKeys.INFER == tf.estimator.ModeKeys.PREDICT
  try:
    _ = tf.contrib.learn.DNNClassifier
  except AttributeError as error:
    assert "Those of tf.estimator take the place" in str(error)


def changed_optimizers_and_predictions(model_dir):
  """tf.contrib.estimator: gradients with a limit, and features among the predictions."""
  import tf1ps.v1 as tf
  weight = tf.get_variable("weight", [2], initializer=tf.zeros_initializer())
  optimizer = tf.contrib.estimator.clip_gradients_by_norm(
    tf.train.MomentumOptimizer(1.0, 0.5), 2.5)
  step = optimizer.minimize(tf.reduce_sum(weight * [3.0, 4.0]))
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run(step)
    assert np.allclose(sess.run(weight), [-1.5, -2.0])  # (3, 4) has the norm 5
  assert optimizer.get_slot(weight, "momentum").shape == [2]
  estimator = make(model_dir)
  estimator.train(input_fn, steps=1)
  first = next(tf.contrib.estimator.forward_features(estimator, "a").predict(lambda: input_fn(1)))
  assert sorted(first) == ["a", "y"]


def tpu_estimator_without_a_tpu(model_dir):
  """TPUEstimator with use_tpu=False, as in BERT's run_classifier."""
  import tf1ps.v1 as tf
  from tf1ps.v1.contrib.tpu.python.tpu import tpu_config, tpu_estimator

  def tpu_model_fn(features, labels, mode, params):
    spec = model_fn(features, labels, mode, params)
    if mode == tf.estimator.ModeKeys.EVAL:
      metrics = (lambda values: {"mean": tf.metrics.mean(values)}), [tf.reshape(labels, [-1])]
      return tf.contrib.tpu.TPUEstimatorSpec(mode, loss=spec.loss, eval_metrics=metrics)
    return tf.contrib.tpu.TPUEstimatorSpec(
      mode, loss=spec.loss, train_op=spec.train_op, predictions=spec.predictions)

  kind = tf.contrib.tpu.InputPipelineConfig.PER_HOST_V2
  estimator = tpu_estimator.TPUEstimator(
    use_tpu=False, model_fn=tpu_model_fn, params={"rate": 0.1}, train_batch_size=8,
    eval_batch_size=8, config=tpu_config.RunConfig(
      model_dir=model_dir, save_checkpoints_steps=10, tpu_config=tpu_config.TPUConfig(
        iterations_per_loop=10, per_host_input_for_training=kind)))
  estimator.train(lambda params: input_fn(), max_steps=10)
  metrics = estimator.evaluate(lambda params: input_fn(), steps=1)
  assert metrics["global_step"] == 10 and metrics["mean"] == 2.3125


def tags_of_sequences():
  """tf.contrib.crf against the sum over all sequences of tags."""
  import tf1ps.v1 as tf
  random = np.random.RandomState(0)
  inputs, pairs = random.randn(3, 4, 3).astype("f"), random.randn(3, 3).astype("f")
  lengths, tags = np.array([4, 2, 1], "i"), random.randint(0, 3, (3, 4)).astype("i")

  def score(row, chain):
    return sum(inputs[row, at, tag] for at, tag in enumerate(chain)) + sum(
      pairs[one, two] for one, two in zip(chain, chain[1:]))

  likelihood, _ = tf.contrib.crf.crf_log_likelihood(
    tf.constant(inputs), tf.constant(tags), tf.constant(lengths), tf.constant(pairs))
  decoded, best = tf.contrib.crf.crf_decode(
    tf.constant(inputs), tf.constant(pairs), tf.constant(lengths))
  with tf.Session() as sess:
    likelihood, decoded, best = sess.run([likelihood, decoded, best])
  for row, length in enumerate(lengths):
    chains = {chain: score(row, chain) for chain in itertools.product(range(3), repeat=length)}
    total = np.log(sum(np.exp(value) for value in chains.values()))
    assert np.isclose(likelihood[row], chains[tuple(tags[row, :length])] - total, atol=1e-5)
    top = max(chains, key=chains.get)
    assert decoded[row].tolist() == [*top, *[0] * (4 - length)]
    assert np.isclose(best[row], chains[top])
    assert tf.contrib.crf.viterbi_decode(inputs[row, :length], pairs)[0] == list(top)


def fused_cells():
  """The fused LSTM computes what LSTMCell computes, from variables of the same names."""
  import tf1ps.v1 as tf
  values = np.random.RandomState(0).randn(4, 3, 2).astype("f")
  lengths = np.array([4, 2, 1], "i")
  fused = tf.contrib.rnn.LSTMBlockFusedCell(5)
  outputs, state = fused(values, dtype=tf.float32, sequence_length=lengths)
  tf.contrib.rnn.TimeReversedFusedRNN(tf.contrib.rnn.LSTMBlockFusedCell(5))(
    values, dtype=tf.float32, sequence_length=lengths)
  expected, last = tf.nn.dynamic_rnn(
    tf.contrib.rnn.LSTMBlockCell(5), tf.constant(values), lengths, dtype=tf.float32,
    time_major=True)
  variables = tf.trainable_variables()
  assert [one.op.name for one in variables] == [
    "lstm_fused_cell/kernel", "lstm_fused_cell/bias", "lstm_fused_cell_1/kernel",
    "lstm_fused_cell_1/bias", "rnn/lstm_cell/kernel", "rnn/lstm_cell/bias"]
  with tf.Session() as sess:
    sess.run(tf.global_variables_initializer())
    sess.run([old.assign(new) for old, new in zip(variables[4:], variables)])
    for found, wanted in sess.run([(outputs, expected), (state.c, last.c), (state.h, last.h)]):
      assert np.allclose(found, wanted, atol=1e-6)
    gradients = sess.run(tf.gradients(tf.reduce_sum(outputs), variables[:2]))
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def learn_config():
  """A master beside TF_CONFIG is the task's own address; worker 0 is the chief."""
  import tf1ps.v1 as tf
  cluster = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}
  found = []
  for job, index, master in (("worker", 0, "grpc://b:1"), ("worker", 1, None), ("ps", 0, "a:1")):
    os.environ["TF_CONFIG"] = json.dumps(
      {"cluster": cluster, "task": {"type": job, "index": index}, "environment": "cloud"})
    config = tf.contrib.learn.RunConfig(master=master)
    found.append((config.task_type, config.task_id, config.is_chief, config.num_ps_replicas))
    assert json.loads(os.environ["TF_CONFIG"])["cluster"] == cluster
  assert found == [("chief", 0, True, 1), ("worker", 0, False, 1), ("ps", 0, False, 1)], found
  for master in ("grpc://b:1", "grpc://localhost:1"):
    try:
      tf.contrib.learn.RunConfig(master=master)  # of the ps
    except ValueError as error:
      assert "name the cluster in TF_CONFIG" in str(error)
    else:
      raise AssertionError(master)


def layers_columns():
  """The columns of tf.contrib.layers are those of tf.feature_column."""
  import tf1ps.v1 as tf
  layers = tf.contrib.layers
  age, kind = layers.real_valued_column("age"), layers.sparse_column_with_keys("kind", ["x", "y"])
  place = layers.sparse_column_with_integerized_feature("place", 3)
  name = layers.sparse_column_with_hash_bucket("name", 7)
  columns = [
    layers.bucketized_column(age, [10.0]),
    layers.one_hot_column(kind),
    layers.one_hot_column(place),
    layers.embedding_column(layers.crossed_column({kind, place, name}, 5), 2,
                            initializer=tf.ones_initializer()),
    layers.embedding_column(name, 1, initializer=tf.zeros_initializer())]
  spec = layers.create_feature_spec_for_parsing(columns)
  assert sorted(spec) == ["age", "kind", "name", "place"]
  net = layers.input_from_feature_columns({
    "age": tf.constant([[20.0]]), "kind": tf.constant([["y"]]), "place": tf.constant([[2]]),
    "name": tf.constant([["q"]])}, columns)
  with tf.Session() as session:
    session.run([tf.global_variables_initializer(), tf.tables_initializer()])
    # By the columns' names: age, the cross, kind, name, place.
    assert session.run(net).tolist() == [[0, 1, 1, 1, 0, 1, 0, 0, 0, 1]]
