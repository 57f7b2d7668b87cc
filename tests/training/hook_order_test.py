"""The order of the training loop's hooks, which features.py explains."""
from __future__ import annotations

import pytest
import tensorflow.compat.v1 as tf

from tests.training import line_program, local_server
from tf1ps.pipeline import next_batch
from tf1ps.program import contract
from tf1ps.session.membership import Membership
from tf1ps.training import build, features, options


def input_fn(mode, shard):
  rows = shard.dataset(tf.data.Dataset.from_tensor_slices(({"x": line_program.X}, line_program.Y)))
  return next_batch(rows.batch(shard.batch_size))  # under --shard=dynamic it starts again


def loop_of(flags, model_fn=line_program.model_fn):
  """The hooks of a chief's loop with these options."""
  made = options.Options(steps=100, examples=1000, batch_size=4, **flags)
  run = Membership(local_server.record("hook-order"))
  program = contract.Program("program", None, input_fn, model_fn)
  with tf.Graph().as_default():
    shard = options.shard_of(made, 0, 3)
    step = build.build_step(program, run.cluster, shard, made, "hook-order")
    return features.Loop(step, shard, run, made, options.bad_records_of(made)).hooks


@pytest.mark.parametrize("flags, order", [
  (dict(overlap=2), [
    "Execution", "StalenessRecorder", "ExampleCounter", "StopAtStep", "StopAtExamples", "EarlyStop",
    "EndOfDataHook", "InputPositions", "TrainedExamples", "StepsInFlight", "StallWatch",
    "TrafficReport", "Progress"]),
  (dict(sync_replicas=True, trace_steps="5:6", checkpoint_dir="unused"), [
    "Execution", "StepTracer", "ExampleCounter", "StopAtStep", "StopAtExamples", "EarlyStop",
    "EndOfDataHook", "SyncReplicasHook", "InputPositions", "TrainedExamples", "StallWatch",
    "TrafficReport", "Progress", "JobSummaries"]),
  (dict(sync_replicas=True, on_uneven="repeat", epochs=1), [
    "Execution", "ExampleCounter", "StopAtStep", "StopAtExamples", "EarlyStop", "EndOfDataHook",
    "SyncReplicasHook", "InputPositions", "RepeatedData", "TrainedExamples", "StallWatch",
    "TrafficReport", "Progress"]),
  (dict(replication="all_reduce"), [
    "Execution", "ExampleCounter", "StopAtStep", "NoExamplesLeft", "StepVote", "TrainedExamples",
    "VotingHook", "StallWatch", "TrafficReport", "Progress"]),
  (dict(shard="dynamic", epochs=1), [
    "Execution", "StalenessRecorder", "ExampleCounter", "StopAtStep", "StopAtExamples", "EarlyStop",
    "EndOfDataHook", "TrainedExamples", "DynamicRanges", "StallWatch", "TrafficReport",
    "Progress", "AutoSteps"]),
  (dict(overlap="prefetch"), [
    "Execution", "StalenessRecorder", "ExampleCounter", "StopAtStep", "StopAtExamples", "EarlyStop",
    "EndOfDataHook", "PrefetchHook", "InputPositions", "TrainedExamples", "StallWatch",
    "TrafficReport", "Progress"])])
def test_the_hooks_of_a_loop_stand_in_this_order(flags, order):
  assert [type(hook).__name__ for hook in loop_of(flags)] == order


@pytest.mark.parametrize("flags, kind, behind", [
  (dict(overlap=2), "Own", "StepsInFlight"), ({}, "Own", "StallWatch"),
  (dict(sync_replicas=True, num_clones=2), "Own", "StallWatch"),
  (dict(replication="in_graph", sync_replicas=True), "Own", "StallWatch"),
  (dict(replication="all_reduce"), "VotingHook", "StallWatch")])
def test_the_hooks_of_the_program_of_one_model_stand_before_the_threads(flags, kind, behind):
  class Own(tf.train.SessionRunHook):
    pass

  def model_fn(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w * features["x"] - labels))
    return contract.ModelSpec(loss=loss, hooks=[Own()])

  hooks = [type(hook).__name__ for hook in loop_of(flags, model_fn)]
  count = hooks.count(kind)
  assert count == (2 if kind == "VotingHook" else 1)  # the first votes for early stopping
  assert hooks[hooks.index(kind) + count] == behind
