"""`tf.contrib.learn.datasets` and its module `base`: MNIST; nothing is downloaded."""

from __future__ import annotations

import os
import sys

from tf1ps.v1 import mnist_data as mnist
from tf1ps.v1.mnist_data import Datasets  # noqa: F401

__path__ = []  # legacy programs import datasets.base and datasets.mnist as modules
base = sys.modules[__name__]

DATASETS = {"mnist": lambda train_dir="MNIST-data": mnist.read_data_sets(train_dir)}


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False):
  """Reads a data set from the folder in which TensorFlow 1 would have put it.

  Args:
    name: "mnist", from the folder MNIST-data.
    size: ignored; an argument of other data sets.
    test_with_fake_data: ignored; an argument of other data sets.

  Raises:
    ValueError: `name` is another data set.
  """
  if name not in DATASETS:
    raise ValueError("load_dataset(%r): tf1ps reads only %s" % (name, ", ".join(DATASETS)))
  return DATASETS[name]()


def maybe_download(filename: str, work_directory: str, source_url: str) -> str:
  """Returns the path of an existing file; nothing is downloaded.

  Raises:
    FileNotFoundError: the file does not exist.
  """
  path = os.path.join(work_directory, filename)
  if not os.path.exists(path):
    raise FileNotFoundError(
        "%s has no file %s. tf1ps downloads nothing: put it there, from %s."
        % (work_directory, filename, source_url))
  return path
