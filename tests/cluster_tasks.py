"""What the tests of cluster, state and compat run as processes: servers."""
from __future__ import annotations

import threading

import tensorflow.compat.v1 as tf


def say(*values):
  """Prints a line that the test waits for."""
  print(*values, flush=True)


def stay():
  """Keeps the process until the test ends it."""
  threading.Event().wait()


def serve(jobs, job, index):
  """A stock server."""
  tf.train.Server(tf.train.ClusterSpec(jobs), job, index)
  say("up")
  stay()
