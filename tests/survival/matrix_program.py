"""The program of the failure matrix: y = 3 x + 2, with a gate at each phase of a task's life."""
import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tests.survival import matrix_gates as gates
from tf1ps.checkpoint import global_step_of_checkpoint, latest_checkpoint
from tf1ps.cluster import LifecycleHook, latest_record

HELD_STEP = 30  # of a worker, while training
EXAMPLES = 400
_calls = {"eval": 0, "save": 0, "step": 0}


def input_fn(mode, shard):
  """x in 0 to 1, y = 3 x + 2, of [batch]; in training without an end."""
  if mode == "eval":
    _begin_evaluation()
  x = np.arange(EXAMPLES, dtype=np.float32) / EXAMPLES
  dataset = shard.dataset(tf.data.Dataset.from_tensor_slices((x, 3 * x + 2)))
  features, labels = tf.data.make_one_shot_iterator(
    dataset.batch(shard.batch_size)).get_next()
  if mode == "train":
    shape = features.shape
    features = tf.numpy_function(_step, [features], tf.float32)
    features.set_shape(shape)
  return features, labels


def _begin_evaluation():
  """The chief evaluates for trial before training, and for good at the end."""
  mine = gates.of_process()
  _calls["eval"] += 1
  if mine is None:
    return
  if mine["task"] == "evaluator 0":
    gates.note("evaluation", _calls["eval"])
    gates.reach("initialising")
    gates.reach("evaluating")
    latest = latest_checkpoint(mine["directory"])
    if latest is not None and global_step_of_checkpoint(latest) >= mine["steps"]:
      gates.reach("end")
  elif _calls["eval"] == 2:
    gates.reach("evaluating")
    gates.recover("evaluation")  # the chief evaluates until the other one recovers


def _step(x):
  _calls["step"] += 1
  if _calls["step"] == HELD_STEP:
    gates.reach("training")
  gates.pace_step()
  return x


def model_fn(features, labels, mode):
  """y = w x + b, with its squared error."""
  if mode == "train":
    gates.recover("model")
    if latest_record().cluster.replica_index:
      gates.reach("initialising")
  w = tf.get_variable("w", [], initializer=_initialise if mode == "train" else
                      tf.zeros_initializer())
  b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
  y = w * features + b
  loss = tf.reduce_mean(tf.square(y - labels))
  hooks = []
  if mode == "train":
    hooks.append(_History())
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, _gate_of_saves())
  return tf1ps.ModelSpec(
    loss=loss, predictions={"y": y}, metrics={"error": tf.metrics.mean(tf.abs(y - labels))},
    hooks=hooks)


def _initialise(shape, dtype=None, partition_info=None):
  """Zero, by way of this process: the chief waits here in the middle of its initialisation."""
  def zero():
    gates.recover("variables")
    gates.reach("initialising")
    return np.float32(0)

  with tf.device(latest_record().cluster.task.name):
    return tf.reshape(tf.numpy_function(zero, [], tf.float32), shape)


def _gate_of_saves():
  """A saveable of this task: the ps may have written their parts when the save waits for it."""
  with tf.Graph().as_default():  # the public way to the class of saveables
    saveable = tf.data.experimental.make_saveable_from_iterator(
      tf.data.make_one_shot_iterator(tf.data.Dataset.range(1)))
  kind, spec = type(saveable).__mro__[1], type(saveable.specs[0])
  device = latest_record().cluster.task.name

  def save():
    _calls["save"] += 1
    if _calls["save"] >= 2:
      gates.note("save", _calls["save"])
      gates.reach("saving")
    return np.float32(_calls["save"])

  def recover(value):
    gates.recover("variables")
    return value

  class Gate(kind):
    def restore(self, restored_tensors, restored_shapes):
      with tf.device(device):
        return tf.numpy_function(recover, restored_tensors, tf.float32).op

  with tf.device(device):
    value = tf.numpy_function(save, [], tf.float32)
    value.set_shape([])
  return Gate(value, [spec(value, "", "gate_of_saves", dtype=tf.float32,
                           device=device + "/device:CPU:0")], "gate_of_saves")


class _History(LifecycleHook):
  """Writes the global step after each run, and waits at the end of the loop."""

  def begin(self):
    self._global_step = tf.train.get_global_step()

  def before_run(self, run_context):
    return tf.train.SessionRunArgs(self._global_step)

  def after_run(self, run_context, run_values):
    gates.note("step", int(run_values.results))

  def leave(self, session, finished=True):
    gates.reach("end")

  def end(self, session):
    gates.reach("end")


if (gates.of_process() or {}).get("task") == "evaluator 0":
  gates.recover("program")
