"""A program's `CheckpointSaverHook` becomes the saver of the session."""
from __future__ import annotations

import tensorflow.compat.v1 as tf

from tf1ps.session import MonitoredTrainingSession


class Listener(tf.train.CheckpointSaverListener):
  """Notes its calls; asks for the end after the checkpoint of a step."""

  def __init__(self, last=None):
    self.calls, self._last = [], last

  def begin(self):
    self.calls.append("begin")

  def before_save(self, session, global_step_value):
    self.calls.append(("before", global_step_value))

  def after_save(self, session, global_step_value):
    self.calls.append(("after", global_step_value))
    return global_step_value == self._last

  def end(self, session, global_step_value):
    self.calls.append(("end", global_step_value))


def train(directory, hook, steps):
  """Returns the steps that were made."""
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    train_op = tf.assign_add(step, 1)
    with MonitoredTrainingSession(
        checkpoint_dir=directory, save_checkpoint_secs=0, chief_only_hooks=[hook],
        hooks=[tf.train.StopAtStepHook(steps)]) as session:
      while not session.should_stop():
        value = session.run(train_op)
    return value


def saved(directory):
  state = tf.train.get_checkpoint_state(directory)
  return [path.rsplit("/", 1)[1] for path in state.all_model_checkpoint_paths]


def test_it_saves_under_the_hooks_name_and_calls_its_listeners(tmp_path):
  listener = Listener()
  hook = tf.train.CheckpointSaverHook(
    str(tmp_path), save_steps=4, checkpoint_basename="mine", listeners=[listener])
  assert train(str(tmp_path), hook, 6) == 6
  assert saved(str(tmp_path)) == ["mine-0", "mine-4", "mine-6"]
  assert listener.calls == [
    "begin", ("before", 0), ("after", 0), ("before", 4), ("after", 4), ("before", 6), ("after", 6),
    ("end", 6)]


def test_a_listener_ends_training(tmp_path):
  hook = tf.train.CheckpointSaverHook(str(tmp_path), save_steps=3, listeners=[Listener(last=3)])
  assert train(str(tmp_path), hook, 100) == 3
  assert saved(str(tmp_path)) == ["model.ckpt-0", "model.ckpt-3"]


def test_listeners_hear_of_a_restored_checkpoint(tmp_path):
  """As with TensorFlow's hook: estimators leave the first one out."""
  train(str(tmp_path), tf.train.CheckpointSaverHook(str(tmp_path), save_steps=5), 5)
  listener = Listener()
  train(str(tmp_path), tf.train.CheckpointSaverHook(
    str(tmp_path), save_steps=5, listeners=[listener]), 10)
  assert listener.calls[1:3] == [("before", 5), ("after", 5)]


def test_a_hook_for_another_directory_stays(tmp_path):
  listener = Listener()
  other = str(tmp_path / "other")
  hook = tf.train.CheckpointSaverHook(other, save_steps=3, listeners=[listener])
  train(str(tmp_path / "own"), hook, 3)
  assert saved(other)[-1] == "model.ckpt-3" and listener.calls[-1] == ("end", 3)
