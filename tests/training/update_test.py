"""The update under each scheme: learning rate, clipping, averages, batch normalization.

On servers in this process. The gradient of the loss is 1, so that a few lines of Python follow
plain gradient descent, whatever the scheme.
"""
from __future__ import annotations

import logging

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training import local_job
from tf1ps.program import ModelSpec, contract

RATE, STEPS, CLIP, DECAY = 0.25, 8, 1.5, 0.8
SCHEDULE = "warmup:3,exponential:4:0.5"
UPDATE = dict(batch_size=8, optimizer="sgd", learning_rate="%g,%s" % (RATE, SCHEDULE),
              clip_norm=CLIP, moving_average_decay=DECAY)


def expected(updates, after=None):
  """The variables and their averages after so many updates, of which `after` had no averages."""
  w = b = 0.0
  averages = {"w": 0.0, "b": 0.0}
  for step in range(updates):
    rate = RATE * 0.5 ** (step / 4) * min(1, (step + 1) / 3)
    clipped = min(1, CLIP / 5 ** 0.5)  # w has two elements, and b three
    w, b = w - rate * clipped, b - rate * clipped
    decay = min(DECAY, (2 + step) / (11 + step))
    if after is not None and step < after:
      decay = 0.0
    averages = {name: decay * averages[name] + (1 - decay) * value
                for name, value in (("w", w), ("b", b))}
  found = {"w": w, "b": b}
  found.update(("%s/ExponentialMovingAverage" % name, value) for name, value in averages.items())
  return {name: pytest.approx(value, abs=1e-6) for name, value in found.items()}


def saved(directory):
  """The values in the last checkpoint, one of each variable."""
  reader = tf.train.load_checkpoint(str(directory))
  return {name: float(np.ravel(reader.get_tensor(name))[0]) for name in expected(0)}


def input_fn(mode, shard):
  x = np.ones(160, np.float32)
  return shard.dataset(tf.data.Dataset.from_tensor_slices(x)).batch(shard.batch_size)


def model_fn(features, labels, mode):
  w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())  # a weight, by its shape
  b = tf.get_variable("b", [3], initializer=tf.zeros_initializer())
  w, b = tf.convert_to_tensor(w), tf.convert_to_tensor(b)  # they may be partitioned
  x = tf.reduce_mean(features)
  mean = tf.get_variable("bn/moving_mean", [], initializer=tf.zeros_initializer(), trainable=False)
  if mode == "train":  # as batch normalization of momentum 0.9 does
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, mean.assign_sub((mean - x) * 0.1))
  metrics = {"w": tf.metrics.mean(w[0, 0] * x), "b": tf.metrics.mean(b[0] * x)}
  return ModelSpec(loss=x * (tf.reduce_sum(w) + tf.reduce_sum(b)), metrics=metrics)


def mean_in(directory):
  """The moving average of a statistic that is 1 in each batch."""
  return float(tf.train.load_checkpoint(str(directory)).get_tensor("bn/moving_mean"))


def check(outcome, directory, updates, **how):
  wanted = expected(updates, **how)
  assert saved(directory) == wanted
  assert {name: outcome.evaluation.metrics[name] for name in "wb"} == {
    name: wanted[name + "/ExponentialMovingAverage"] for name in "wb"}


@pytest.mark.slow
@pytest.mark.parametrize("options", [
  dict(steps_per_execution=2, partition_bytes=4),
  dict(gradient_accumulation_steps=2),
  dict(overlap="prefetch"), dict(num_clones=2), dict(staleness_policy="damp"),
  dict(staleness_policy="drop:5"), dict(sync_replicas=True),
  dict(replication="in_graph"), dict(replication="all_reduce", num_clones=2)],
  ids=lambda options: ",".join("%s=%s" % each for each in options.items()))
def test_one_worker(options, tmp_path):
  outcome = local_job.train(
    input_fn, model_fn, steps=STEPS, checkpoint_dir=str(tmp_path), **dict(UPDATE, **options))
  # The fetched values are one update older.
  fresh = stale = before = 0.0
  for _ in range(STEPS):
    fresh += 0.1 * (1 - fresh)
    stale, before = stale + 0.1 * (1 - before), stale
  found = mean_in(tmp_path)
  # Prefetch moves it from the value of one update before, unless the update comes before the fetch.
  if "overlap" in options:
    assert fresh + 1e-3 < found < stale + 1e-6
  else:
    assert found == pytest.approx(fresh)
  check(outcome, tmp_path, STEPS)


@pytest.fixture
def cluster():
  tf.disable_control_flow_v2()  # as the programs do
  with tf.Graph().as_default(), tf1ps.local_cluster(num_ps=2, num_workers=2) as cluster:
    yield cluster


@pytest.mark.slow
@pytest.mark.parametrize("options", [
  dict(sync_replicas=True, on_uneven="shrink"), dict(replication="in_graph", sync_replicas=True)],
  ids=["sync", "in-graph"])
def test_two_workers(cluster, options, tmp_path):
  outcome = cluster.train(
    (input_fn, model_fn), steps=STEPS, checkpoint_dir=str(tmp_path), **UPDATE, **options)
  check(outcome, tmp_path, STEPS)
  # A worker's part may follow that of the other one: 0.95 twice, in place of 0.9.
  assert 1 - 0.95 ** (2 * STEPS) - 1e-6 < mean_in(tmp_path) < 1 - 0.9 ** STEPS + 1e-6


@pytest.mark.slow
def test_a_job_goes_on_after_a_restart(tmp_path):
  for steps in (3, STEPS):
    outcome = local_job.train(
      input_fn, model_fn, steps=steps, checkpoint_dir=str(tmp_path), **UPDATE)
    check(outcome, tmp_path, steps)


@pytest.mark.slow
def test_averages_begin_at_the_values_of_a_checkpoint_without_them(
    tmp_path, caplog, monkeypatch):
  monkeypatch.setattr(logging.getLogger("tf1ps"), "propagate", True)
  caplog.set_level(logging.INFO, "tf1ps")
  for steps, decay in ((3, None), (STEPS, DECAY)):
    outcome = local_job.train(input_fn, model_fn, steps=steps, checkpoint_dir=str(tmp_path),
                              **dict(UPDATE, moving_average_decay=decay))
  assert saved(tmp_path) == expected(STEPS, after=3)
  assert "model.ckpt-3 has no moving averages: they begin at the values of their variables" in (
    caplog.text)
  outcome = local_job.train(input_fn, model_fn, steps=STEPS + 1, checkpoint_dir=str(tmp_path),
                            **dict(UPDATE, moving_average_decay=None))
  assert outcome.evaluation.metrics["w"] == expected(STEPS + 1)["w"]
  assert "model.ckpt-8 has moving averages, which this job does not keep" in caplog.text


@pytest.mark.parametrize("optimizer", [
  "lazy_adam", pytest.param("proximal_sgd", marks=pytest.mark.slow),
  pytest.param("adadelta", marks=pytest.mark.slow)])
def test_every_kind_of_optimizer_takes_it(optimizer):
  outcome = local_job.train(input_fn, model_fn, steps=4, batch_size=8, optimizer=optimizer,
                            learning_rate="cosine:2")
  again = local_job.train(input_fn, model_fn, steps=2, batch_size=8, optimizer=optimizer,
                          learning_rate="cosine:2")
  assert outcome.evaluation.metrics["w"] == again.evaluation.metrics["w"] < 0


@pytest.mark.parametrize("spec, problem", [
  (dict(optimizer=True), "--learning_rate=cosine:5 has no effect: the program brings an optimizer "
                         "of its own"),
  (dict(train_op=True), "model_fn returned a train_op, and --learning_rate=cosine:5")])
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
    local_job.train(input_fn, own, steps=2, learning_rate="cosine:5")
  assert problem in str(caught.value)


def test_a_rate_of_0_for_ftrl_is_refused():
  with pytest.raises(ValueError, match="--learning_rate=cosine:5 ends with a learning rate of 0"):
    local_job.train(input_fn, model_fn, steps=2, optimizer="ftrl", learning_rate="cosine:5")
