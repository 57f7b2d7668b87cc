"""A program that trains on numbers from several sources, and writes down on which."""
import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps
from tf1ps.pipeline import datasets

flags.DEFINE_enum("source", "blocks", ["blocks", "files", "datasets"],
                  "Records in memory; lines of files, by tf.data alone or by tf1ps.")
flags.DEFINE_string("folder", "", "Where the files are, with a number in each line.")
flags.DEFINE_integer("records", 1000, "How many are in memory.")
flags.DEFINE_string("trained", "", "Begin of the names of files with the numbers trained on.")
flags.DEFINE_string("pauses", "0", "Seconds of a batch, for each worker.")
flags.DEFINE_integer("shuffled", None, "Size of the buffer that shuffles.")
flags.DEFINE_boolean("one_shot", False, "Uses a one-shot iterator.")

FLAGS = flags.FLAGS


def input_fn(mode, shard):
  """Numbers of [batch], as features and as labels."""
  numbers = _memory(shard) if mode != "train" else _SOURCES[FLAGS.source](shard)
  if mode == "train":
    numbers = _note(numbers, shard.index)
  return tf.cast(numbers, tf.float32), numbers


def _memory(shard):
  records = tf.data.Dataset.from_tensor_slices(np.arange(FLAGS.records, dtype=np.int64))
  return _next(shard.dataset(records, shuffle=FLAGS.shuffled).batch(shard.batch_size))


def _files(shard):
  lines = shard.dataset(tf.data.TextLineDataset(shard.files(_pattern())), shuffle=FLAGS.shuffled)
  return _next(lines.batch(shard.batch_size).map(_decode))


def _pattern():
  return os.path.join(FLAGS.folder, "*.txt")


def _decode(lines):
  return tf.strings.to_number(lines, tf.int64)


def _next(dataset):
  if FLAGS.one_shot:
    return tf.data.make_one_shot_iterator(dataset).get_next()
  return tf.data.make_initializable_iterator(dataset).get_next()


_SOURCES = {
  "blocks": _memory, "files": _files,
  "datasets": lambda shard: datasets.text_line_dataset(
    shard, _pattern(), _decode, shuffle=FLAGS.shuffled)}


def _note(numbers, index):
  pauses = [float(pause) for pause in FLAGS.pauses.split(",")]

  def note(batch):
    if FLAGS.trained:
      with open("%s.%d.%d" % (FLAGS.trained, index, os.getpid()), "a") as file:
        file.write("".join("%d\n" % number for number in batch))
    threading.Event().wait(pauses[index % len(pauses)])
    return batch

  noted = tf.numpy_function(note, [numbers], tf.int64)
  noted.set_shape([None])
  return noted


def model_fn(features, labels, mode):
  """A mean."""
  mean = tf.get_variable("mean", [], initializer=tf.zeros_initializer())
  loss = tf.reduce_mean(tf.square(features / FLAGS.records - mean))
  return tf1ps.ModelSpec(loss=loss)
