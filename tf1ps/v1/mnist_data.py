"""Reads the handwritten digits of MNIST, as `tensorflow.examples.tutorials.mnist.input_data` did.

It reads the four IDX files, compressed or not, and downloads nothing.
Format: http://yann.lecun.com/exdb/mnist.
"""

from __future__ import annotations

import gzip
import os
from typing import NamedTuple, Optional, Tuple

import numpy as np
import tensorflow.compat.v1 as tf

_FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
          "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_SOURCE = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_UNSIGNED_BYTES = 8  # the only type of value that MNIST's files hold
_NUM_CLASSES = 10


class DataSet:
  """Images and labels, and batches of them.

  Args:
    images: `[examples, rows, columns, depth]`, unsigned bytes.
    labels: `[examples]`, or `[examples, 10]` with one 1 each.
    fake_data: whether batches have made-up values, as in tests of programs.
    one_hot: whether made-up labels have the shape `[10]`.
    dtype: the type of the images: `tf.uint8` leaves them, `tf.float32` divides them by 255.
    reshape: whether the images become `[examples, rows * columns]`.
    seed: the seed of the shuffling.
  """

  def __init__(self, images, labels, fake_data=False, one_hot=False, dtype=tf.float32,
               reshape=True, seed=None):
    dtype = tf.as_dtype(dtype)
    if dtype not in (tf.uint8, tf.float32):
      raise ValueError("The images can be tf.uint8 or tf.float32, not %r." % dtype)
    self._random = np.random.RandomState(seed)
    self._fake_label = [1] + [0] * (_NUM_CLASSES - 1) if one_hot else 0
    self._fake_data = fake_data
    if fake_data:
      images, labels = np.zeros([10000, 28, 28, 1], np.uint8), np.zeros([10000], np.uint8)
    if len(images) != len(labels):
      raise ValueError("There are %d images and %d labels." % (len(images), len(labels)))
    if reshape:
      images = images.reshape(len(images), -1)
    if dtype == tf.float32:
      images = np.multiply(images, np.float32(1 / 255), dtype=np.float32)
    self._images, self._labels = images, labels
    self._order = np.arange(len(images))
    self._position = 0
    self._epochs_completed = 0

  images = property(lambda self: self._images)
  labels = property(lambda self: self._labels)
  num_examples = property(lambda self: len(self._images))
  epochs_completed = property(lambda self: self._epochs_completed)

  def next_batch(self, batch_size, fake_data=False, shuffle=True):
    """Returns (images, labels) of the next examples; a batch may continue into the next epoch."""
    if fake_data or self._fake_data:
      return [[1] * 784] * batch_size, [self._fake_label] * batch_size
    if shuffle and self._position == 0 and self._epochs_completed == 0:
      self._random.shuffle(self._order)
    chosen = []
    while len(chosen) < batch_size:
      if self._position == self.num_examples:
        self._position = 0
        self._epochs_completed += 1
        if shuffle:
          self._random.shuffle(self._order)
      end = min(self._position + batch_size - len(chosen), self.num_examples)
      chosen.extend(self._order[self._position:end])
      self._position = end
    return self._images[chosen], self._labels[chosen]


class Datasets(NamedTuple):
  """The three parts of MNIST."""

  train: DataSet
  validation: DataSet
  test: DataSet


def read_data_sets(train_dir: str, fake_data: bool = False, one_hot: bool = False,
                   dtype=tf.float32, reshape: bool = True, validation_size: int = 5000,
                   seed: Optional[int] = None, source_url: Optional[str] = None) -> Datasets:
  """Reads MNIST from a directory.

  Args:
    train_dir: the directory of the four files.
    fake_data: whether to make up batches and read nothing.
    one_hot: whether a label is a vector of ten with one 1.
    dtype: the type of the images: `tf.uint8` leaves them, `tf.float32` divides them by 255.
    reshape: whether an image is a vector of 784, not `[28, 28, 1]`.
    validation_size: the number of training examples, from the first, that are for validation.
    seed: the seed of the shuffling.
    source_url: ignored: nothing is downloaded.

  Returns:
    The examples for training, validation and test.

  Raises:
    FileNotFoundError: a file is missing.
    ValueError: a file is not in the IDX format, or validation_size is too large.
  """
  del source_url
  options = {"one_hot": one_hot, "dtype": dtype, "reshape": reshape, "seed": seed}
  if fake_data:
    return Datasets(*[DataSet([], [], fake_data=True, **options) for _ in range(3)])
  images, labels, test_images, test_labels = [
      _read(path, 3 if "idx3" in path else 1) for path in _find(train_dir)]
  if one_hot:
    labels, test_labels = [np.eye(_NUM_CLASSES)[part] for part in (labels, test_labels)]
  if not 0 <= validation_size <= len(images):
    raise ValueError("validation_size=%d must be between 0 and the %d training examples."
                     % (validation_size, len(images)))
  first, rest = slice(None, validation_size), slice(validation_size, None)
  return Datasets(*[DataSet(of_images, of_labels, **options) for of_images, of_labels in (
      (images[rest], labels[rest]), (images[first], labels[first]), (test_images, test_labels))])


def _find(folder) -> Tuple[str, ...]:
  """Returns the path of each file, packed or not, because some browsers unpack downloads."""
  paths = []
  for name in _FILES:
    there = [path for path in (os.path.join(folder, name + ".gz"), os.path.join(folder, name))
             if os.path.exists(path)]
    if not there:
      raise FileNotFoundError(
          "%s has no file %s.gz. tf1ps downloads nothing: put the files %s there, from %s for "
          "example." % (folder, name, ", ".join(file + ".gz" for file in _FILES), _SOURCE))
    paths.append(there[0])
  return tuple(paths)


def _read(path, rank):
  """Reads an IDX file of unsigned bytes: `[examples]`, or `[examples, rows, columns, 1]`."""
  with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
    content = file.read()
  header = np.frombuffer(content[:4 + 4 * rank], ">u4").astype(np.int64)
  if len(header) != 1 + rank or header[0] != _UNSIGNED_BYTES << 8 | rank:
    raise ValueError("%s is not an IDX file of unsigned bytes with %d dimensions." % (path, rank))
  shape = header[1:]
  values = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
  if len(values) != np.prod(shape):
    raise ValueError("%s holds %d values, and its header says %s: it is cut off."
                     % (path, len(values), " x ".join(map(str, shape))))
  return values.reshape(*shape, 1) if rank == 3 else values
