"""The program of recovery.py: a small model whose workers note when they make each step."""
from __future__ import annotations

import os
import struct
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import tensorflow.compat.v1 as tf  # noqa: E402
from absl import flags  # noqa: E402

import tf1ps  # noqa: E402
from tf1ps.cluster import LifecycleHook, latest_record  # noqa: E402

flags.DEFINE_string("notes", "", "The folder of the notes.")
flags.DEFINE_float("step_seconds", 0.01, "How long a step waits, at least.")
FLAGS = flags.FLAGS
NOTE = struct.Struct("=cd")  # the kind of an event, and its time by `time.monotonic`
UP, RESTORED, STEP = b"u", b"r", b"s"


def input_fn(mode, shard):
  """Returns numbers, [batch]; in training, after a pause."""
  values = shard.dataset(tf.data.Dataset.from_tensor_slices(tf.range(1000.0)))
  numbers = tf.data.make_one_shot_iterator(values.batch(shard.batch_size)).get_next()
  if mode == "train":
    with tf.control_dependencies([tf.py_func(_wait, [], [], stateful=True)]):
      numbers = tf.identity(numbers)
  return numbers, None


def _wait():
  threading.Event().wait(FLAGS.step_seconds)


def model_fn(features, labels, mode):
  """Builds a variable for each ps, and the hook with the notes of a worker whose server is up."""
  values = [tf.get_variable("v%d" % index, [256], initializer=tf.zeros_initializer())
            for index in range(2)]
  loss = tf.reduce_mean(tf.square(features)) * 1e-9 + sum(
    tf.reduce_sum(tf.square(value - 1.0)) for value in values)
  return tf1ps.ModelSpec(loss=loss, hooks=[Notes()] if mode == "train" else [])


class Notes(LifecycleHook):
  """Notes that the server is up, that the state was restored, and each step."""

  def __init__(self):
    path = os.path.join(FLAGS.notes, "%d" % latest_record().cluster.replica_index)
    self._file = open(path, "ab", buffering=0)
    self._note(UP)

  def on_state_begun(self, session, checkpoint):
    self._note(RESTORED)

  def after_run(self, run_context, run_values):
    self._note(STEP)

  def _note(self, kind):
    self._file.write(NOTE.pack(kind, time.monotonic()))
