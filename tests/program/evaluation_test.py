from __future__ import annotations

import time

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training import line_program
from tf1ps.checkpoint import checkpoints
from tf1ps.program import evaluation, trained_model
from tf1ps.program.contract import Program

LINE = Program("line", line_program, line_program.input_fn, line_program.model_fn)
EXACT = {"bias": -4.5, "worst": 4.5, "loss": 28.5}


@pytest.mark.parametrize("batch_size", [4, 10, 64])
def test_metrics_are_of_all_examples_alike(tmp_path, batch_size):
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  began = time.monotonic()
  found = evaluation.evaluate_checkpoint(LINE, path, batch_size)
  passed = time.monotonic() - began
  assert found.metrics == EXACT
  assert (found.examples, found.global_step) == (10, 7)
  assert 0 < found.seconds <= passed


def test_nothing_else_in_the_process_is_touched(tmp_path):
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  server = tf.train.Server.create_local_server()
  with tf.Graph().as_default() as graph:
    w = tf.get_variable("w", [], initializer=tf.constant_initializer(5.), use_resource=True)
    with tf.Session(server.target) as session:
      session.run(tf.global_variables_initializer())
      before = graph.as_graph_def()
      assert evaluation.evaluate_checkpoint(LINE, path, 4, config=tf.ConfigProto()).metrics == EXACT
      assert session.run(w) == 5.
    assert graph.as_graph_def() == before and tf.get_default_graph() is graph


def with_model(model_fn, input_fn=line_program.input_fn):
  return Program("other", None, input_fn, model_fn)


def test_a_variable_that_the_checkpoint_lacks_is_named_with_the_nearest(tmp_path):
  def model_fn(features, labels, mode):
    tf.get_variable("hidden/weights", [2])
    return line_program.model_fn(features, labels, mode)

  path = line_program.save(tmp_path, 7, w=1., b=1., **{"hidden/weight": [1., 2.]})
  with pytest.raises(checkpoints.CheckpointError, match=(
      r"^checkpoint .*-7 lacks the model's variable 'hidden/weights' of shape \(2,\): its nearest "
      "name is 'hidden/weight'$")):
    evaluation.evaluate_checkpoint(with_model(model_fn), path, 4)


@pytest.mark.parametrize("value, expected", [
    ([1., 2., 3.], r"'extra' has shape \(2,\), but shape \(3,\) in checkpoint .*-7$"),
    ([1, 2], "'extra' has type float32, but type int32 in checkpoint .*-7$"),
])
def test_a_variable_of_another_shape_or_type_is_named(tmp_path, value, expected):
  def model_fn(features, labels, mode):
    tf.get_variable("extra", [2])
    return line_program.model_fn(features, labels, mode)

  path = line_program.save(tmp_path, 7, w=1., b=1., extra=value)
  with pytest.raises(checkpoints.CheckpointError, match=expected):
    evaluation.evaluate_checkpoint(with_model(model_fn), path, 4)


def test_partitioned_variables_local_variables_and_tables(tmp_path):
  def model_fn(features, labels, mode):
    parts = tf.get_variable("parts", [5, 2], partitioner=tf.fixed_size_partitioner(2),
                            initializer=tf.zeros_initializer())
    counter = tf.get_local_variable("counter", [], initializer=tf.zeros_initializer())
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([0, 1]), tf.constant([10., 20.])), 0.)
    total = tf.reduce_sum(tf.convert_to_tensor(parts)) + table.lookup(tf.constant(1))
    return tf1ps.ModelSpec(metrics={"total": (counter, counter.assign(total))})

  path = line_program.save(tmp_path, 7, w=1., b=1., parts=[[1., 2.]] * 5)
  assert evaluation.evaluate_checkpoint(with_model(model_fn), path, 4).metrics == {"total": 35.}


def test_a_checkpoint_without_a_global_step(tmp_path):
  with tf.Graph().as_default(), tf.Session() as session:
    tf.get_variable("w", [], initializer=tf.ones_initializer())
    tf.get_variable("b", [], initializer=tf.ones_initializer())
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "model"))
  found = evaluation.evaluate_checkpoint(LINE, path, 4)
  assert found.metrics == EXACT and found.global_step is None


def test_a_damaged_checkpoint(tmp_path):
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  with open(path + ".data-00000-of-00001", "r+b") as file:
    file.truncate(3)
  with pytest.raises(checkpoints.CheckpointError, match="is damaged in .*data-00000-of-00001"):
    evaluation.evaluate_checkpoint(LINE, path, 4)
  with pytest.raises(checkpoints.CheckpointError, match="nothing is not complete"):
    evaluation.evaluate_checkpoint(LINE, str(tmp_path / "nothing"), 4)


def test_empty_data_is_an_error(tmp_path):
  def input_fn(mode, shard):
    dataset = tf.data.Dataset.from_tensor_slices(({"x": line_program.X}, line_program.Y)).take(0)
    return tf.data.make_one_shot_iterator(dataset.batch(2)).get_next()

  path = line_program.save(tmp_path, 7, w=1., b=1.)
  with pytest.raises(evaluation.EvaluationError, match="gave no example in mode 'eval'"):
    evaluation.evaluate_checkpoint(with_model(line_program.model_fn, input_fn), path, 4)


def test_a_trial_reads_one_batch_and_needs_no_checkpoint():
  drawn = []

  def input_fn(mode, shard):
    assert mode == "eval"
    x = tf.data.Dataset.range(10**6).map(lambda x: tf.numpy_function(
      lambda value: drawn.append(int(value)) or np.float32(value), [x], tf.float32))
    features = tf.data.make_one_shot_iterator(x.batch(shard.batch_size)).get_next()
    features.set_shape([None])
    return {"x": features}, features

  evaluation.try_evaluation(with_model(line_program.model_fn, input_fn), 2)
  assert 2 <= len(drawn) < 1000  # TensorFlow may read ahead
  with pytest.raises(evaluation.EvaluationError, match="gave no example in mode 'eval'"):
    evaluation.try_evaluation(with_model(line_program.model_fn, lambda mode, shard: (
      tf.data.Dataset.from_tensor_slices(({"x": np.float32([])}, np.float32([]))).batch(2))), 2)


def repeats(mode, shard):
  return tf.data.Dataset.from_tensor_slices(
    ({"x": line_program.X}, line_program.Y)).batch(shard.batch_size).repeat()


def test_an_evaluation_without_an_end_has_a_limit(tmp_path, caplog):
  endless = with_model(line_program.model_fn, repeats)
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  trained_model._said.clear()
  evaluation.try_evaluation(endless, 10)
  found = evaluation.evaluate_checkpoint(endless, path, 10)
  assert (found.metrics, found.examples) == (EXACT, 100 * 10)
  assert [record.getMessage() for record in caplog.records] == [
    "input_fn repeats its data without end in mode 'eval', so a pass has 100 batches: "
    "tf1ps.ModelSpec(eval_steps=N) sets another number"]
  limited = with_model(lambda *args: line_program.model_fn(*args)._replace(eval_steps=3), repeats)
  evaluation.try_evaluation(limited, 10)
  found = evaluation.evaluate_checkpoint(limited, path, 10)
  assert (found.metrics, found.examples) == (EXACT, 30)
  assert evaluation.evaluate_checkpoint(limited, path, 4).examples == 10  # 4, 4 and 2


@pytest.mark.parametrize("eval_steps, examples", [(None, 10), (3, 30)])
def test_tensors_that_each_run_makes_anew_are_one_batch(tmp_path, caplog, eval_steps, examples):
  def input_fn(mode, shard):
    x = tf.random.uniform([10])
    return {"x": x}, x + 1

  def model_fn(*args):
    return line_program.model_fn(*args)._replace(eval_steps=eval_steps)

  path = line_program.save(tmp_path, 7, w=1., b=1.)
  trained_model._said.clear()
  found = evaluation.evaluate_checkpoint(with_model(model_fn, input_fn), path, 4)
  assert found.metrics == dict.fromkeys(EXACT, 0.0) and found.examples == examples
  assert [record.getMessage() for record in caplog.records] == ([] if eval_steps else [
    "input_fn makes its tensors anew in each run in mode 'eval', so a pass has 1 batch: "
    "tf1ps.ModelSpec(eval_steps=N) sets another number"])


def test_constants_are_one_batch(tmp_path):
  def input_fn(mode, shard):
    y = tf.get_local_variable("y", initializer=line_program.Y)
    return {"x": tf.constant(line_program.X)}, y + 0

  path = line_program.save(tmp_path, 7, w=1., b=1.)
  found = evaluation.evaluate_checkpoint(with_model(line_program.model_fn, input_fn), path, 4)
  assert found.metrics == EXACT and found.examples == 10


def queue_input(rows, epochs=1):
  """Two columns through TensorFlow 1's queues."""
  def input_fn(mode, shard):
    x, y = tf.train.slice_input_producer([rows, line_program.Y], num_epochs=epochs, shuffle=False)
    x = tf.strings.to_number(x)
    x, y = tf.train.batch([x, y], shard.batch_size, allow_smaller_final_batch=True)
    return {"x": x}, y
  return input_fn


def test_queue_runners_are_run(tmp_path):
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  program = with_model(line_program.model_fn, queue_input([str(x) for x in line_program.X]))
  found = evaluation.evaluate_checkpoint(program, path, 4)
  assert found.metrics == EXACT and found.examples == 10


def test_the_error_of_a_queue_runner_is_the_one_that_is_told(tmp_path):
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  program = with_model(line_program.model_fn, queue_input(["no number"] * 10))
  with pytest.raises(tf.errors.InvalidArgumentError, match="no number"):
    evaluation.evaluate_checkpoint(program, path, 4)


def test_a_value_that_needs_a_batch_is_an_error_and_no_end(tmp_path):
  def model_fn(features, labels, mode):
    value = tf.reduce_mean(labels)
    return tf1ps.ModelSpec(metrics={"wrong": (value, value)})

  path = line_program.save(tmp_path, 7, w=1., b=1.)
  with pytest.raises(evaluation.EvaluationError, match="needs a further batch"):
    evaluation.evaluate_checkpoint(with_model(model_fn), path, 4)


def endless_input_fn(mode, shard):
  rows = tf.data.Dataset.from_tensor_slices(({"x": line_program.X}, line_program.Y)).repeat(10**9)
  return tf.data.make_one_shot_iterator(rows.batch(shard.batch_size)).get_next()


@pytest.mark.parametrize("input_fn", [
    endless_input_fn, queue_input([str(x) for x in line_program.X], epochs=None)])
def test_an_evaluation_without_end_can_be_interrupted(tmp_path, input_fn):
  answers = iter([False] * 5 + [True] * 3)
  path = line_program.save(tmp_path, 7, w=1., b=1.)
  program = with_model(line_program.model_fn, input_fn)
  assert evaluation.evaluate_checkpoint(program, path, 4, interrupted=lambda: next(answers)) is None


def test_format_line():
  one = evaluation.Evaluation({"loss": .10339, "accuracy": .97108, "auc": 1.}, 360, 1200, .4321)
  assert evaluation.format_evaluation(one) == (
      "test accuracy 0.9711, test auc 1.0000, test loss 0.1034 at step 1200 (360 examples, 0.4 s)")
  assert evaluation.format_evaluation(one._replace(metrics={"auc": .5}, global_step=None)) == (
      "test auc 0.5000 (360 examples, 0.4 s)")


@pytest.mark.parametrize("checkpoint, text", [
  ("/c/model.ckpt-1200", "(360"),
  ("/c/model.ckpt-1198", "(in model.ckpt-1198, whose save began before, 360"),
  ("/c/model.ckpt", "(360"), ("", "(360")])
def test_a_checkpoint_of_another_step_than_its_name_says_is_named(checkpoint, text):
  one = evaluation.Evaluation({"auc": 1.}, 360, 1200, .4321, checkpoint)
  assert evaluation.format_evaluation(one) == (
    "test auc 1.0000 at step 1200 %s examples, 0.4 s)" % text)
