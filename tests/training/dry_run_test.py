from __future__ import annotations

import os

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.program import Program, ProgramError
from tf1ps.training import NanLossError, Options, make_dry_run

VALUES = np.arange(12, dtype=np.float32).reshape(6, 2)


def input_fn(mode, shard):
  return shard.dataset(tf.data.Dataset.from_tensor_slices(
    ({"x": VALUES, "name": ["a"] * 6}, np.arange(6)))).batch(shard.batch_size)


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [2, 1])
  bias = tf.get_variable("bias", [], initializer=tf.zeros_initializer())
  error = tf.matmul(features["x"], w)[:, 0] + bias - tf.cast(labels, tf.float32)
  return tf1ps.ModelSpec(loss=tf.reduce_mean(tf.square(error)))


def run(make_input=input_fn, make_model=model_fn, num_ps=1, num_workers=2, **options):
  tf.disable_control_flow_v2()  # as the programs do
  return make_dry_run(Program("program", None, make_input, make_model),
                      Options(steps=1, batch_size=4, **options), num_ps, num_workers)


@pytest.mark.parametrize("num_ps, options", [
  (2, dict(sync_replicas=True, on_uneven="shrink")), (1, dict(replication="in_graph")),
  (0, dict(replication="all_reduce")), (2, dict(shard="dynamic", partition_bytes=4)),
  *(pytest.param(1, options, marks=pytest.mark.slow) for options in (
    {}, dict(staleness_policy="damp", overlap="prefetch"),
    dict(gradient_accumulation_steps=2, wire_dtype="float16", optimizer="adamw"),
    dict(moving_average_decay=0.9, overlap=2)))])
def test_a_step_of_each_scheme_is_made_without_a_server(tmp_path, monkeypatch, num_ps, options):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(tf.train, "Server", None)
  made = run(num_ps=num_ps, checkpoint_dir=str(tmp_path / "c"), **options)
  assert made.inputs == {
    "features['name']": "string [4]", "features['x']": "float32 [4, 2]", "labels": "int64 [4]"}
  assert [(one.op.name, one.shape.as_list()) for one in made.variables] == [("w", [2, 1]),
                                                                            ("bias", [])]
  assert made.loss > 0 and not made.has_own_update
  assert os.listdir(str(tmp_path)) == []


@pytest.mark.parametrize("brought", ["optimizer", "train_op"])
def test_the_programs_own_update_is_noted(brought):
  def build(features, labels, mode):
    spec, own = model_fn(features, labels, mode), tf.train.GradientDescentOptimizer(0.1)
    return spec._replace(**{brought: own if brought == "optimizer" else own.minimize(spec.loss)})

  assert run(make_model=build).has_own_update


def test_its_queue_runners_and_hooks_run():
  seen = []

  class Hook(tf.train.SessionRunHook):
    def after_run(self, run_context, run_values):
      seen.append("run")

  def read(mode, shard):
    assert shard.count
    queue = tf.train.string_input_producer(["1", "2"], shuffle=False, num_epochs=9)
    return tf.train.batch([tf.string_to_number(queue.dequeue())], 4), None

  def build(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    return tf1ps.ModelSpec(loss=tf.reduce_mean(tf.square(w - features)),
                           hooks=[Hook()] if mode == "train" else ())

  made = run(make_input=read, make_model=build, num_workers=1)
  assert made.inputs == {"features": "float32 [4]"} and made.loss == 2.5 and seen == ["run"]


def test_what_cannot_train_is_refused():
  with pytest.raises(ValueError, match="3, but there are 2 workers"):
    run(sync_replicas=3)

  def nan(features, labels, mode):
    spec = model_fn(features, labels, mode)
    return spec._replace(loss=spec.loss * np.float32("nan"))

  with pytest.raises(NanLossError, match="the loss is NaN at global step 0"):
    run(make_model=nan)

  def nothing(mode, shard):
    data = shard.dataset(tf.data.Dataset.from_tensor_slices(VALUES))
    data = data.take(0) if mode == "train" else data
    return tf.data.make_one_shot_iterator(data.batch(4)).get_next(), None

  with pytest.raises(ProgramError, match='input_fn gives no batch in mode "train"'):
    run(make_input=nothing, make_model=lambda features, labels, mode: tf1ps.ModelSpec(
      loss=tf.reduce_mean(features * tf.get_variable("w", []))))
