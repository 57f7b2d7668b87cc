from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster import Cluster
from tf1ps.pipeline import Shard
from tf1ps.program import ModelSpecError, Program
from tf1ps.training import build, optimizer_table, optimizers, options

# The rates at which --optimizer alone trains.
DEFAULT_RATES = {
  "sgd": 0.01, "momentum": 0.01, "nesterov": 0.01, "adam": 0.001, "adamw": 0.001,
  "lazy_adam": 0.001, "adagrad": 0.05, "adadelta": 1.0, "rmsprop": 0.001, "ftrl": 0.05,
  "proximal_sgd": 0.01, "proximal_adagrad": 0.05}
# A value of each option that acts on the update, other than its default.
CHANGED = {
  "replication": "in_graph", "sync_replicas": True,
  "on_uneven": "pad", "num_clones": 2, "gradient_accumulation_steps": 2, "clip_norm": 1.0,
  "moving_average_decay": 0.9, "overlap": "prefetch", "wire_dtype": "float16",
  "staleness_policy": "damp", "optimizer": "momentum:0.5",
  "learning_rate": "0.1,cosine:10"}
# Those that do the same whoever makes the update.
OTHERS = {
  "batch_size", "checkpoint_dir", "config", "epochs", "examples",
  "on_bad_record", "pack_bytes", "partition_bytes", "ps_recovery", "save_checkpoints",
  "save_summary_steps", "shard", "stall_after", "start_timeout", "steps", "steps_per_execution",
  "trace_steps"}

# w after two steps on the loss w * w / 2 from w = 1, with a learning rate of 0.1: each optimizer's
# formula by hand, as tf.train's documentation gives it with the defaults there.
TWO_STEPS = {
    "sgd": 0.81,  # w * 0.9, twice
    "momentum": 0.72,  # 0.9; then the sum of gradients is 0.9 * 1 + 0.9
    "nesterov": 0.5751,  # 1 - 0.1 * 1.9 = 0.81; then the sum is 1.71, the step 0.81 + 0.9 * 1.71
    "adam": 0.80041,  # 0.9; then m = 0.18, v = 0.001809, the rate 0.1 * 0.04471 / 0.19
    "adamw": 0.79852,  # 0.899; then 0.899 * 0.999 - 0.02353 * 0.1799 / 0.04251
    "lazy_adam": 0.80041,  # a dense gradient's is Adam's
    "adagrad": 0.83934,  # the squares sum to 0.1 + 1, then to 0.8184 more
    "rmsprop": 0.80913,  # the mean square is 1, then 0.981
    "proximal_sgd": 0.81,
    "proximal_adagrad": 0.83934,
}


def two_steps(name):
  with tf.Graph().as_default():
    w = tf.get_variable("w", initializer=1.)
    step = optimizers.make_optimizer(name, 0.1).minimize(w * w / 2)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(step)
      session.run(step)
      return session.run(w)


@pytest.mark.parametrize("name", optimizer_table.OPTIMIZERS)
def test_each_name_makes_its_optimizer(name):
  found = two_steps(name)
  assert found < 1
  if name in TWO_STEPS:
    assert found == pytest.approx(TWO_STEPS[name], abs=2e-5)


def test_an_optimizer_has_its_usual_learning_rate():
  assert set(DEFAULT_RATES) == set(optimizer_table.OPTIMIZERS)
  for name, rate in DEFAULT_RATES.items():
    found = optimizers.build_learning_rate(options.Options(optimizer=name))
    attributes = vars(optimizers.make_optimizer(name, found))
    assert attributes.get("_lr", attributes.get("_learning_rate")) == rate


def test_a_learning_rate_may_be_a_tensor():
  with tf.Graph().as_default():
    w = tf.get_variable("w", initializer=1.)
    step = optimizers.make_optimizer("sgd", tf.constant(0.5)).minimize(w * w / 2)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      session.run(step)
      assert session.run(w) == 0.5


def test_a_wrong_name_gets_the_nearest():
  said = "must be the name of an optimizer \\(%s"
  with pytest.raises(ValueError, match=said % 'did you mean "adam"'):
    optimizers.make_optimizer("adamm", 0.1)
  with pytest.raises(ValueError, match=said % "give one of adadelta, adagrad"):
    optimizers.make_optimizer("xyz", 0.1)


@pytest.mark.parametrize("text, said", [
  ("adamw:-1", "must have a number from 0 on behind adamw:, the weight decay"),
  ("momentum:", "must have a number from 0 on behind momentum:, the momentum"),
  ("nesterov:inf", "must have a number from 0 on behind nesterov:, the momentum"),
  ("adam:0.9", "must have no number behind adam")])
def test_a_wrong_number_behind_a_name(text, said):
  with pytest.raises(ValueError, match="^%s$" % said):
    optimizers.make_optimizer(text, 0.1)


@pytest.mark.parametrize("text, moved", [
  ("momentum:0", 0.81), ("momentum:0.5", 0.76),  # 0.9; then 0.1 * (0.9 + 0.5) less
  ("nesterov:0.5", 0.6975),  # 0.85; then the sum is 1.35, the step 0.085 + 0.05 * 1.35
  ("adamw:0", 0.80041)])
def test_a_number_behind_a_name_is_an_argument(text, moved):
  assert two_steps(text) == pytest.approx(moved, abs=2e-5)


@pytest.mark.parametrize("rate", [0, -0.1, float("nan"), float("inf")])
def test_a_learning_rate_must_be_positive(rate):
  with pytest.raises(ValueError, match="learning_rate must be above 0 and finite, got"):
    optimizers.make_optimizer("sgd", rate)


def test_no_option_is_forgotten_where_a_program_brings_its_own():
  """For a new option: what it needs of the optimizer stands in NEEDS, or it belongs to OTHERS."""
  assert set(optimizers.NEEDS) | OTHERS == set(options.Options._fields)
  assert not set(optimizers.NEEDS) & OTHERS
  assert set(CHANGED) == set(optimizers.NEEDS)


def build_step(brought, **flags):
  """Builds the step of a program that brings its own optimizer or train_op."""
  def input_fn(mode, shard):
    data = shard.dataset(tf.data.Dataset.from_tensor_slices(np.ones(8, np.float32))).batch(4)
    return tf.data.make_one_shot_iterator(data).get_next(), None

  def model_fn(features, labels, mode):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss, own = tf.reduce_mean(tf.square(w - features)), tf.train.GradientDescentOptimizer(0.5)
    made = own if brought == "optimizer" else own.minimize(loss)
    return tf1ps.ModelSpec(loss=loss, **{brought: made})

  cluster = Cluster({"ps": {0: "a:1"}, "worker": {0: "c:1", 1: "d:1"}}, "worker", 0)
  shard = Shard(index=0, count=2, batch_size=4)
  tf.disable_control_flow_v2()  # as the programs do
  with tf.Graph().as_default():
    return build.build_step(Program("program", None, input_fn, model_fn), cluster, shard,
                            options.Options(steps=1, **flags))


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_what_an_own_optimizer_makes_of_an_option(name):
  if name not in ("learning_rate", "staleness_policy"):
    build_step("optimizer", **{name: CHANGED[name]})
    return
  with pytest.raises(ValueError, match="--%s.* has no effect: the program brings an optimizer of "
                     "its own, which knows its learning rate" % name):
    build_step("optimizer", **{name: CHANGED[name]})


@pytest.mark.parametrize("name", sorted(CHANGED))
def test_what_an_own_training_op_makes_of_an_option(name):
  if name == "optimizer":
    build_step("train_op", **{name: CHANGED[name]})
    return
  flag = options.as_flag(name, CHANGED[name])
  with pytest.raises(ModelSpecError, match="model_fn returned a train_op, and %s makes the update "
                     "itself" % flag):
    build_step("train_op", **{name: CHANGED[name]})


@pytest.mark.parametrize("flags", [
  dict(staleness_policy="max_lead:3"), dict(overlap=2), dict(learning_rate=0.25)])
def test_what_needs_no_gradient_goes_with_both(flags):
  for brought in ("optimizer", "train_op"):
    build_step(brought, **flags)
