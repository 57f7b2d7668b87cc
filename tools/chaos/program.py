"""The program that the workers of a chaos run train, and the hook that records their steps.

Each ps has a variable `counts_K` with one element per worker. The gradient of a worker's step is
minus 1 in its element, and the learning rate is 1. So the element counts the updates that this ps
has applied for the worker. With synchronous updates the gradient is multiplied by the number of
workers: each update adds exactly 1 to each element if it is the mean of one gradient per worker.
"""

from __future__ import annotations

import os
import threading

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster import LifecycleHook
from tools.chaos import history, worlds
from tools.chaos.entry import Settings
from tools.chaos.plan import NUM_PS, NUM_WORKERS

BATCH = 8
_BALLAST = 1 << 20  # floats per ps, so that a save lasts long enough to be hit


SETTINGS = None  # of this process; see `begin`
WRITER = None


def begin(settings: Settings) -> history.Writer:
  """Begins the history of this process; returns its writer."""
  global SETTINGS, WRITER
  SETTINGS = settings
  WRITER = history.Writer(settings.history, settings.job, settings.task)
  WRITER.write("begin", pid=worlds.process_id(), tensorflow=tf.__version__)
  return WRITER


def input_fn(mode, shard):
  """The numbers of the examples, of [batch]."""
  ids = tf.data.Dataset.range(SETTINGS.examples if mode == "train" else BATCH)
  return tf.data.make_initializable_iterator(
    shard.dataset(ids).batch(shard.batch_size)).get_next()


def model_fn(features, labels, mode):
  """Counters, and some ballast that makes a checkpoint larger."""
  ids = drawn(features) if mode == "train" else features
  loss = make_loss(ids)
  if mode != "train":
    return tf1ps.ModelSpec(loss=loss, predictions={"id": ids})
  return tf1ps.ModelSpec(loss=loss, hooks=[Recorder(ids)])


def make_loss(ids):
  """Makes the variables, and the loss whose gradient counts a step."""
  counts = []
  for ps in range(NUM_PS):
    tf.get_variable("ballast_%d" % ps, [_BALLAST], trainable=False,
                    initializer=tf.zeros_initializer())
  for ps in range(NUM_PS):
    counts.append(tf.get_variable("counts_%d" % ps, [NUM_WORKERS],
                                  initializer=tf.zeros_initializer()))
  scale = NUM_WORKERS if SETTINGS.mode == "sync" else 1
  own = np.zeros([NUM_WORKERS], np.float32)
  own[SETTINGS.index] = scale
  weight = tf.cast(tf.size(ids) > 0, tf.float32)  # the step waits for its batch
  return -tf.add_n([tf.reduce_sum(count * own * weight) for count in counts])


def drawn(ids):
  """Records a batch when it is drawn, and makes the step last for its pause."""
  def note(batch):
    WRITER.write("drawn", ids=batch.tolist())
    if not os.path.exists(SETTINGS.gate):
      threading.Event().wait(SETTINGS.pause)
    return batch

  noted = tf.numpy_function(note, [ids], tf.int64)
  noted.set_shape([None])
  return noted


class Recorder(LifecycleHook):
  """Records the steps of a worker."""

  def __init__(self, ids):
    self._ids, self._number = ids, 0

  def begin(self):
    self._step = tf.train.get_global_step()

  def after_create_session(self, session, coord):
    WRITER.write("session")

  def on_state_begun(self, session, checkpoint):
    if checkpoint is None:
      WRITER.write("initialised")

  def before_run(self, run_context):
    self._number += 1
    WRITER.write("try", number=self._number)
    return tf.train.SessionRunArgs([self._ids, self._step])

  def after_run(self, run_context, run_values):
    ids, step = run_values.results
    WRITER.write("ack", number=self._number, ids=ids.tolist(), step=int(step))
    if SETTINGS.mode == "sync":  # the step that was fetched may be that before the update
      WRITER.write("at", number=self._number, step=int(run_context.session.run(self._step)))

  def leave(self, session, finished=True):
    WRITER.write("ending")

  def end(self, session):
    WRITER.write("leave")


def record_checkpoints() -> None:
  """Records each save and restore of this process whose session leads to a server."""
  save, restore = tf.train.Saver.save, tf.train.Saver.restore

  def recorded_save(self, sess, save_path, *args, **kwargs):
    WRITER.write("saving", path=str(save_path))
    path = save(self, sess, save_path, *args, **kwargs)
    WRITER.write("saved", path=path)
    return path

  def recorded_restore(self, sess, save_path):
    is_remote = bool(sess.sess_str)
    if is_remote:
      WRITER.write("restoring", path=str(save_path))
    restore(self, sess, save_path)
    if is_remote:
      WRITER.write("restored", path=str(save_path))

  tf.train.Saver.save, tf.train.Saver.restore = recorded_save, recorded_restore


def watch_checkpoints(settings: Settings) -> None:
  """Records each checkpoint in the directory once it is complete; runs as a process of its own."""
  begin(settings)
  listed = os.path.join(settings.checkpoint_dir, "checkpoint")
  seen, pause = set(), threading.Event()
  changed = None
  while True:
    try:
      stat = os.stat(listed)
    except OSError:
      stat = None
    if stat is not None and stat.st_mtime_ns != changed:
      changed = stat.st_mtime_ns
      state = tf.train.get_checkpoint_state(settings.checkpoint_dir)
      for path in state.all_model_checkpoint_paths if state is not None else []:
        _look(path, seen)
    pause.wait(0.01)


def _look(path, seen):
  try:
    key = path, os.stat(path + ".index").st_mtime_ns
    if key in seen:
      return
    reader = tf.train.load_checkpoint(path)
    step = int(reader.get_tensor("global_step"))
    counts = [reader.get_tensor("counts_%d" % ps).tolist() for ps in range(NUM_PS)]
  except (OSError, ValueError, tf.errors.OpError) as error:
    WRITER.write("unreadable", path=path, error=str(error)[:200])
    return
  seen.add(key)
  WRITER.write("checkpoint", path=path, step=step, counts=counts)
