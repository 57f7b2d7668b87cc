"""A damaged checkpoint that is read in a recovery looks like a clean end of training.

Expected: an error.
"""
import glob
import os
import tempfile

import tensorflow.compat.v1 as tf
from helper import ready, say

tf.disable_eager_execution()
folder = tempfile.mkdtemp()


class Lose(tf.train.SessionRunHook):
  """Has the session lost in its first step, with a damaged checkpoint."""

  def after_run(self, context, values):
    for path in glob.glob(os.path.join(folder, "*.data*")):
      os.truncate(path, 4)
    raise tf.errors.AbortedError(None, None, "lost")


def train(steps, save_steps, hooks):
  """Returns the steps that were made."""
  made = 0
  with tf.Graph().as_default():
    tf.get_variable("big", [1000])
    more = tf.assign_add(tf.train.create_global_step(), 1)
    with tf.train.MonitoredTrainingSession(
        checkpoint_dir=folder, save_checkpoint_steps=save_steps, save_checkpoint_secs=None,
        save_summaries_steps=None, save_summaries_secs=None, log_step_count_steps=None,
        hooks=hooks) as session:
      while made < steps:
        session.run(more)
        made += 1
  return made


train(5, 2, [])
ready()
try:
  say("ended as if after its data, with %d of 100 steps" % train(100, None, [Lose()]))
except tf.errors.OpError as error:
  say(type(error).__name__)
