"""What the tests run as processes of a cluster of stock servers, whose sessions are tf1ps's.

The clock that they print is one for all processes of a machine.
"""
from __future__ import annotations

import os
import time

import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.training import local_loop


def say(what):
  print("%s at %.3f" % (what, time.monotonic()), flush=True)


def train(workers, index, go_file, done_file):
  """One of two workers whose variables live on worker 0; the chief waits for a file to begin."""
  tf.disable_v2_behavior()
  server = tf.train.Server({"worker": workers}, job_name="worker", task_index=index)
  with tf.device("/job:worker/task:0"):
    model = local_loop.Model()
  say("up")
  if index == 0:
    harness.wait_until(lambda: os.path.exists(go_file))
  for _ in range(2):
    with tf1ps.MonitoredTrainingSession(server.target, index == 0, start_timeout=60) as session:
      say("ready")
      session.run(model.train_op)
  if index == 0:  # whose server keeps the variables
    harness.wait_until(lambda: os.path.exists(done_file))
  else:
    open(done_file, "w").close()


def wait_for_a_chief(workers):
  """A worker whose chief never comes."""
  tf.disable_v2_behavior()
  server = tf.train.Server({"worker": workers[:1]}, job_name="worker", task_index=0)
  local_loop.Model()
  began = time.monotonic()
  try:
    tf1ps.MonitoredTrainingSession(server.target, is_chief=False, max_wait_secs=1.5)
  except RuntimeError as error:
    print("%.1f s: %s: %s" % (time.monotonic() - began, type(error).__name__, error))


def connect_to_nobody(address):
  """A chief of a server that is not there."""
  tf.disable_v2_behavior()
  local_loop.Model()
  began = time.monotonic()
  try:
    tf1ps.MonitoredTrainingSession("grpc://" + address, start_timeout=1.5)
  except RuntimeError as error:
    print("%.1f s: %s: %s" % (time.monotonic() - began, type(error).__name__, error))
