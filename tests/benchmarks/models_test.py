from __future__ import annotations

import gzip
import struct

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from benchmarks import models


def test_the_sizes_are_those_of_the_tables():
  def sizes(name):
    values = models.initial_values(models.get(name))
    return [value if isinstance(value, tuple) else value.shape for _, value in values]

  assert sizes("S") == [(784, 10), (10,)]
  assert sizes("M")[::2] == [(784, 1024), (1024, 1024), (1024, 10)]
  assert sizes("L") == [(64, 64), (64,)] * 100
  assert sizes("V50") == [(16, 16)] * 50
  assert sizes("E_zipf")[0] == (1000000, 32)
  with pytest.raises(ValueError, match="there is no model 'V0'"):
    models.get("V0")


def test_the_networks_have_the_parameters_of_their_papers():
  def parameters(name):
    values = models.initial_values(models.get(name))
    return len(values), sum(int(np.prod(getattr(value, "shape", value))) for _, value in values)

  # The usual count of ResNet-50 is that of one scale and one shift behind each convolution.
  assert parameters("resnet50") == (161, 25557032)
  assert parameters("vgg16") == (32, 138357544)
  assert parameters("narrow") == (402, 201 * 256 * 257)


def test_a_seed_orders_the_same_examples_anew_and_minibatches_come_once():
  model = models.get("V1")
  first, again, other = [models.data(model, seed, 4) for seed in (0, 0, 1)]
  assert first.features.shape == (4, 32, 16)
  np.testing.assert_array_equal(first.features, again.features)
  assert (first.features != other.features).any()
  np.testing.assert_array_equal(*[
    np.sort(one.features.reshape(-1, 16), 0) for one in (first, other)])
  np.testing.assert_array_equal(first.eval_features, other.eval_features)
  with tf.Graph().as_default(), tf.Session() as session:
    batches = models.dataset(tf, model, first.features, first.labels)
    found, _ = tf.data.make_one_shot_iterator(batches).get_next()
    np.testing.assert_array_equal([session.run(found) for _ in range(4)], first.features)


def test_few_ids_make_most_of_zipf():
  uniform, zipf = [models.data(models.get(name), 0, 2).features for name in ("E", "E_zipf")]
  assert uniform.shape == zipf.shape == (2, 1024, 10)
  assert len(np.unique(uniform)) > 3 * len(np.unique(zipf))


@pytest.mark.parametrize("name", [
  "S", "H", "V2", "E_small", "resnet_tiny", "resnet_tiny_fed"])
def test_every_model_learns(name):
  model = models.get(name)
  data = models.data(model, 0, 8)
  with tf.Graph().as_default():
    features, labels = tf.data.make_one_shot_iterator(
      models.dataset(tf, model, data.features, data.labels).repeat()).get_next()
    loss = models.loss(tf, model, features, labels, models.graph_variables(tf, model))
    step = tf.train.GradientDescentOptimizer(model.learning_rate).minimize(loss)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      seen = [session.run([loss, step])[0] for _ in range(80)]
  assert np.mean(seen[-8:]) < np.mean(seen[:8])


def test_mnist_is_read_plain_or_packed(tmp_path, monkeypatch):
  monkeypatch.setenv("TF1PS_MNIST", str(tmp_path))
  for name, count, pack in (("train", 200, gzip.open), ("t10k", 7, open)):
    ending = ".gz" if pack is gzip.open else ""
    with pack(str(tmp_path / (name + "-images-idx3-ubyte" + ending)), "wb") as file:
      file.write(struct.pack(">4I", 0x803, count, 28, 28) + bytes(784 * count))
    with pack(str(tmp_path / (name + "-labels-idx1-ubyte" + ending)), "wb") as file:
      file.write(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))
  data = models.data(models.get("mnist"))
  assert data.features.shape == (2, 100, 784) and data.eval_features.shape == (7, 784)
  assert np.bincount(data.labels.ravel()).tolist() == [20] * 10
