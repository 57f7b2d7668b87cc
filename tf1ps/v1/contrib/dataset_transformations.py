"""Transformations of datasets that have shorter names in tf.data today."""

from __future__ import annotations

import tensorflow.compat.v1 as tf


def batch_and_drop_remainder(batch_size):
  """For `Dataset.apply`: whole batches only."""
  return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size, padded_shapes, padding_values=None):
  """For `Dataset.apply`: whole padded batches only."""
  return lambda dataset: dataset.padded_batch(
      batch_size, padded_shapes, padding_values, drop_remainder=True)


def sloppy_interleave(map_func, cycle_length, block_length=1):
  """For `Dataset.apply`: reads several datasets in parallel, in the order of their answers."""
  return tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)
