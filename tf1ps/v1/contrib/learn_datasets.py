"""`tf.contrib.learn.datasets`: MNIST; nothing is downloaded."""

from __future__ import annotations

from tf1ps.v1.contrib import learn_base as base  # noqa: F401
from tf1ps.v1.examples.tutorials.mnist import input_data as mnist  # noqa: F401

__path__ = []  # legacy programs import datasets.mnist as a module


DATASETS = {"mnist": lambda train_dir="MNIST-data": mnist.read_data_sets(train_dir)}


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False):
  """Reads a data set of the folder in which TensorFlow 1 would have put it.

  Args:
    name: "mnist", of the folder MNIST-data.
    size: of other data sets.
    test_with_fake_data: of other data sets.

  Raises:
    ValueError: it is another data set.
  """
  if name not in DATASETS:
    raise ValueError("load_dataset(%r): tf1ps reads only %s" % (name, ", ".join(DATASETS)))
  return DATASETS[name]()
