"""The model and the fifty batches of tests/replication/reference.py as a program."""
import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps
from tests.replication import reference

flags.DEFINE_enum("reference", "sgd", reference.OPTIMIZERS, "The optimizer, at its rate there.")


def input_fn(mode, shard):
  """ids and targets of [batch], in order, so that all workers together have the whole batch."""
  data = tf.data.Dataset.from_tensor_slices(
    (reference.IDS.reshape(-1).astype(np.int32), reference.TARGETS.reshape(-1)))
  data = shard.dataset(data).batch(shard.batch_size)
  return tf.data.make_one_shot_iterator(data).get_next()


def model_fn(features, labels, mode):
  """A row of a table times a weight, plus a bias."""
  return tf1ps.ModelSpec(
    loss=reference.model(features, labels),
    optimizer=reference.make_optimizer(flags.FLAGS.reference))
