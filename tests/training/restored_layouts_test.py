"""A checkpoint knows no layout: any number of ps, partition, packing and scheme restores it."""
from __future__ import annotations

import shutil

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests.training.job import Job, codes

NOTHING = 1e-30  # a learning rate that changes no float32
TRAINED = ("table", "w", "b")


def input_fn(mode, shard):
  ids = np.arange(400, dtype=np.int64) % 40
  rows = tf.data.Dataset.from_tensor_slices((ids, (ids % 7).astype(np.float32)))
  return tf.data.make_one_shot_iterator(
    shard.dataset(rows).batch(shard.batch_size)).get_next()


def model_fn(features, labels, mode):
  table = tf.get_variable("table", [40, 8], initializer=tf.ones_initializer())
  w = tf.get_variable("w", [8, 1], initializer=tf.ones_initializer())
  b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
  if hasattr(table, "as_tensor"):
    table = table.as_tensor()
  answer = tf.matmul(tf.gather(table, features), w)[:, 0] + b
  return tf1ps.ModelSpec(loss=tf.reduce_mean(tf.square(answer - labels)))


def train(directory, steps, learning_rate, num_ps=1, **options):
  tf.disable_control_flow_v2()  # as in tf1ps-worker
  with tf.Graph().as_default(), tf1ps.local_cluster(num_ps=num_ps, num_workers=1) as cluster:
    return cluster.train(
      (input_fn, model_fn), checkpoint_dir=str(directory), optimizer="momentum", batch_size=20,
      steps=steps, learning_rate=learning_rate, **options)


def values_in(directory):
  reader = tf.train.load_checkpoint(str(directory))
  assert reader.has_tensor("table/Momentum")
  return {name: reader.get_tensor(name) for name in TRAINED}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """The directory of a job that made 5 steps, and its variables."""
  directory = tmp_path_factory.mktemp("trained") / "d"
  train(directory, 5, 0.01, num_ps=2, partition_bytes=256)
  values = values_in(directory)
  assert len(set(values["table"].ravel())) > 10
  return directory, values


@pytest.mark.slow
@pytest.mark.parametrize("layout", [
  dict(num_ps=1), dict(num_ps=3), dict(num_ps=3, partition_bytes=128), dict(pack_bytes=0),
  dict(num_ps=2, sync_replicas=True), dict(replication="in_graph"),
  dict(replication="in_graph", sync_replicas=True, num_ps=2, partition_bytes=512),
  dict(overlap=2), dict(overlap="prefetch"),
], ids=lambda layout: ",".join("%s=%s" % each for each in layout.items()))
def test_any_layout_restores_a_checkpoint_and_trains_on(trained, tmp_path, layout):
  directory, before = trained
  shutil.copytree(str(directory), str(tmp_path / "d"))
  outcome = train(tmp_path / "d", 8, NOTHING, **layout)
  assert outcome.global_step >= 8 and outcome.steps < 8  # it went on from step 5
  after = values_in(tmp_path / "d")
  for name in TRAINED:
    assert np.array_equal(after[name], before[name]), name


@pytest.mark.slow
def test_all_reduce_restores_it_and_ps_restore_what_all_reduce_saved(start, trained, tmp_path):
  directory, before = trained
  shutil.copytree(str(directory), str(tmp_path / "d"))
  for steps, num_ps, flags in ((8, 0, ["--replication=all_reduce"]), (12, 2, [])):
    job = Job(start, num_ps, 2, flags=[
      "--program=%s" % __file__, "--checkpoint_dir=%s" % (tmp_path / "d"), "--batch_size=20",
      "--optimizer=momentum", "--learning_rate=%g" % NOTHING, "--steps=%d" % steps, *flags])
    ps, workers = job.all()
    assert codes(*workers, *ps) == [0] * (2 + num_ps)
    after = values_in(tmp_path / "d")
    for name in TRAINED:
      assert np.array_equal(after[name], before[name]), name
