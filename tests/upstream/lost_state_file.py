"""The state file is deleted: training begins at step 0 beside its checkpoints, without a word.

Expected: an error, or the newest checkpoint.
"""
import os
import tempfile

import tensorflow.compat.v1 as tf
from helper import ready, say

tf.disable_eager_execution()
folder = tempfile.mkdtemp()


def train(steps):
  with tf.Graph().as_default():
    step = tf.train.create_global_step()
    more = tf.assign_add(step, 1)
    with tf.train.MonitoredTrainingSession(checkpoint_dir=folder) as session:
      for _ in range(steps):
        last = session.run(more)
  return last


train(5)
os.remove(os.path.join(folder, "checkpoint"))
ready()
say("the next step is %d" % train(1))
