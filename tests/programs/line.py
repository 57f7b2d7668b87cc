"""A program that fits y = 3 x + 2 on 400 records; flags make its steps slow, or spoil it."""
import os
import sys
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import flags

import tf1ps
from tf1ps.cluster import LifecycleHook, server

flags.DEFINE_float("step_seconds", 0.0, "How long a step takes, at least.")
flags.DEFINE_integer("slow_index", -1, "Only this worker is slow; -1: all.")
flags.DEFINE_integer("block_at", -1, "This worker's step that never ends; -1: none.")
flags.DEFINE_string("block_until", "", "Or that ends when this file is there.")
flags.DEFINE_string("evaluate_until", "", "The evaluation goes on when this file is there.")
flags.DEFINE_integer("nan_at", -1, "The step whose loss is NaN; -1: none.")
flags.DEFINE_boolean("hang_in_initialiser", False, "An initialiser of a variable never ends.")
flags.DEFINE_boolean("extra_variable", False, "Adds a variable that other workers do not have.")
flags.DEFINE_string("fail_in", "", "Raises there: input, model, step, eval, last_eval; "
                    "exit: in the model.")
flags.DEFINE_string("stop_when", "", "A hook ends training when this file is there.")
flags.DEFINE_string("leave_until", "", "The chief leaves its loop when this file is there.")
flags.DEFINE_string("build_until", "", "The model is built when this file is there.")

FLAGS = flags.FLAGS
_evaluations = []


def input_fn(mode, shard):
  """x in 0 to 1, y = 3 x + 2, of [batch]."""
  if mode == "eval":
    _evaluations.append(len(_evaluations))  # the first is tried before training
  if (FLAGS.fail_in == "input" or FLAGS.fail_in == "eval" and mode == "eval"
      or FLAGS.fail_in == "last_eval" and _evaluations == [0, 1]):
    raise ValueError("no data today")
  if FLAGS.evaluate_until and _evaluations == [0, 1]:
    print("holds its evaluation", flush=True)
    _wait_for(FLAGS.evaluate_until)
  x = np.arange(400, dtype=np.float32) / 400
  dataset = shard.dataset(tf.data.Dataset.from_tensor_slices((x, 3 * x + 2)), shuffle=400)
  make_iterator = (tf.data.make_initializable_iterator if shard.is_dynamic
                   else tf.data.make_one_shot_iterator)
  features, labels = make_iterator(dataset.batch(shard.batch_size)).get_next()
  if mode == "train":
    features = _slow(features, shard.index)
  return features, labels


def _slow(features, index):
  steps = [0]

  def hold(x):
    steps[0] += 1
    if FLAGS.slow_index in (-1, index):
      if steps[0] == FLAGS.block_at:
        print("holds step %d" % steps[0], flush=True)
        _wait_for(FLAGS.block_until)
      threading.Event().wait(FLAGS.step_seconds)
    if FLAGS.fail_in == "step" and steps[0] == 5:
      raise ValueError("a bad record")
    return x * np.float32("nan") if steps[0] == FLAGS.nan_at else x

  held = tf.numpy_function(hold, [features], tf.float32)
  held.set_shape(features.shape)
  return held


def _wait_for(path):
  until = time.monotonic() + 3600.0
  while not os.path.exists(path) and time.monotonic() < until:
    threading.Event().wait(0.02)


def _hang(shape, dtype=None, partition_info=None):
  def hold():
    print("initialising for ever", flush=True)
    threading.Event().wait(3600.0)
    return np.float32(0)

  with tf.device(server.latest_record().cluster.task.name):  # where `hold` is known
    return tf.reshape(tf.numpy_function(hold, [], tf.float32), shape)


def model_fn(features, labels, mode):
  """y = w x + b, with its squared error."""
  if FLAGS.fail_in == "model":
    raise ValueError("no model today")
  if FLAGS.fail_in == "exit":
    sys.exit("no model today")
  if FLAGS.build_until:
    print("holds its model", flush=True)
    try:
      _wait_for(FLAGS.build_until)
    except SystemExit as error:
      raise RuntimeError("as C++ does that calls Python") from error
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  b = tf.get_variable("b", [], initializer=_hang if FLAGS.hang_in_initialiser and mode == "train"
                      else tf.zeros_initializer())
  if FLAGS.extra_variable:
    tf.get_variable("extra", [3])
  y = w * features + b
  if mode == "predict":
    return tf1ps.ModelSpec(predictions={"y": y})
  # Of few operations: tf.losses and tf.metrics build a check of the shapes for each, in each task.
  loss = tf.reduce_mean(tf.square(y - labels))
  hooks = []
  if FLAGS.stop_when and mode == "train":
    hooks.append(StopWhen(FLAGS.stop_when))
  if FLAGS.leave_until and mode == "train" and server.latest_record().cluster.is_chief:
    hooks.append(LeaveWhen(FLAGS.leave_until))
  return tf1ps.ModelSpec(
    loss=loss, predictions={"y": y}, metrics={"error": tf.metrics.mean(tf.abs(y - labels))},
    hooks=hooks)


class StopWhen(tf.train.SessionRunHook):
  """Ends training when a file is there."""

  def __init__(self, path):
    self._path = path

  def after_run(self, run_context, run_values):
    if os.path.exists(self._path):
      run_context.request_stop()


class LeaveWhen(LifecycleHook):
  """Holds the end of the loop until a file is there."""

  def __init__(self, path):
    self._path = path

  def leave(self, session, finished=True):
    print("holds its end", flush=True)
    _wait_for(self._path)
