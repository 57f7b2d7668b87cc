"""The steps after a Supervisor's last checkpoint are lost when its program ends as it should.

Expected: a checkpoint of step 10.
"""
import tempfile
import threading

import tensorflow.compat.v1 as tf
from helper import ready, say

tf.disable_eager_execution()
folder = tempfile.mkdtemp()
step = tf.train.create_global_step()
more = tf.assign_add(step, 1)
supervisor = tf.train.Supervisor(logdir=folder, save_model_secs=600)
ready()
with supervisor.managed_session() as session:
  while not tf.train.latest_checkpoint(folder):  # a thread of the Supervisor writes the first one
    threading.Event().wait(0.05)
  for _ in range(10):
    session.run(more)
saved = tf.train.latest_checkpoint(folder)
say("the last checkpoint is of step %s" % (saved.rpartition("-")[2] if saved else "none"))
