"""A learning-rate schedule under each update scheme, on servers in this process.

The gradient is 1, and plain gradient descent sums the learning rates up: after n updates the weight
is minus the sum of the rates at steps 0 to n - 1, whatever the scheme.
"""
from __future__ import annotations

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training import local_job
from tf1ps.program import ModelSpec, contract

RATE, STEPS = 0.25, 8
SCHEDULE = "warmup:3,exponential:4:0.5"
RATES = [RATE * 0.5 ** (step / 4) * min(1, (step + 1) / 3) for step in range(100)]


def input_fn(mode, shard):
  x = np.ones(160, np.float32)
  return shard.dataset(tf.data.Dataset.from_tensor_slices(x)).batch(shard.batch_size)


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  x = tf.reduce_mean(features)
  return ModelSpec(loss=w * x, metrics={"w": tf.metrics.mean(w * x)})


def sum_of_rates(updates, times=1.0):
  return pytest.approx(-times * sum(RATES[:updates]), abs=1e-6)


@pytest.mark.parametrize("options", [
  {}, dict(steps_per_execution=2), dict(gradient_accumulation_steps=2), dict(steps_in_flight=1),
  dict(prefetch=True), dict(num_clones=2), dict(clip_norm=9.0), dict(variables="ref"),
  dict(staleness_policy="damp"), dict(staleness_policy="drop:5"), dict(sync_replicas=True),
  dict(sync_replicas=True, scale_learning_rate=True), dict(replication="in_graph"),
  dict(replication="in_graph", sync_replicas=True), dict(replication="all_reduce"),
  dict(replication="all_reduce", num_clones=2)],
  ids=lambda options: ",".join("%s=%s" % each for each in options.items()))
def test_one_worker(options):
  outcome = local_job.train(
    input_fn, model_fn, steps=STEPS, batch_size=8, optimizer="sgd", learning_rate=RATE,
    learning_rate_decay=SCHEDULE, **options)
  assert outcome.evaluation.metrics["w"] == sum_of_rates(STEPS)


@pytest.fixture
def cluster():
  has_v2 = tf.control_flow_v2_enabled()
  tf.disable_control_flow_v2()
  with tf.Graph().as_default(), tf1ps.local_cluster(num_ps=2, num_workers=2) as cluster:
    yield cluster
  if has_v2:
    tf.enable_control_flow_v2()


@pytest.mark.parametrize("times, options", [
  (1, dict(sync_replicas=True)), (2, dict(sync_replicas=True, scale_learning_rate=True)),
  (1, dict(replication="in_graph", sync_replicas=True))],
  ids=["sync", "scaled", "in-graph"])
def test_two_workers(cluster, times, options):
  outcome = cluster.train(
    (input_fn, model_fn), steps=STEPS, batch_size=4, optimizer="sgd", learning_rate=RATE,
    learning_rate_decay=SCHEDULE, **options)
  assert outcome.evaluation.metrics["w"] == sum_of_rates(STEPS, times)


def test_it_goes_on_after_a_restart(tmp_path):
  for steps in (3, STEPS):
    outcome = local_job.train(
      input_fn, model_fn, steps=steps, batch_size=8, optimizer="sgd", learning_rate=RATE,
      learning_rate_decay=SCHEDULE, checkpoint_dir=str(tmp_path))
    assert outcome.evaluation.metrics["w"] == sum_of_rates(steps)


@pytest.mark.parametrize("optimizer", ["proximal_sgd", "lazy_adam", "adadelta"])
def test_every_kind_of_optimizer_takes_it(optimizer):
  outcome = local_job.train(input_fn, model_fn, steps=4, batch_size=8, optimizer=optimizer,
                            learning_rate_decay="cosine:2")
  again = local_job.train(input_fn, model_fn, steps=2, batch_size=8, optimizer=optimizer,
                          learning_rate_decay="cosine:2")
  assert outcome.evaluation.metrics["w"] == again.evaluation.metrics["w"] < 0


@pytest.mark.parametrize("spec, problem", [
  (dict(optimizer=True), "--learning_rate_decay has no effect: the program brings an optimizer of "
                         "its own"),
  (dict(train_op=True), "model_fn returned a train_op, and --learning_rate_decay=cosine:5")])
def test_a_program_with_its_own_update_is_refused(spec, problem):
  def own(features, labels, mode):
    found = model_fn(features, labels, mode)
    if mode != "train":
      return found
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    if "optimizer" in spec:
      return found._replace(optimizer=optimizer)
    return found._replace(train_op=optimizer.minimize(found.loss))

  with pytest.raises((ValueError, contract.ModelSpecError)) as caught:
    local_job.train(input_fn, own, steps=2, learning_rate_decay="cosine:5")
  assert problem in str(caught.value)


def test_a_rate_of_0_for_ftrl_is_refused():
  with pytest.raises(ValueError, match="decay=cosine:5 ends with a learning rate of 0"):
    local_job.train(input_fn, model_fn, steps=2, optimizer="ftrl", learning_rate_decay="cosine:5")
