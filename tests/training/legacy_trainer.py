"""A trainer of the classic kind, with a graph and a loop of its own, for tests to run as processes.

Only `import tf1ps` makes it tf1ps's. Its model counts: the variables `even` and `odd`, of which
each ps gets one where there are two, begin at `initial` and grow by 1 in each step.
"""
from __future__ import annotations

import itertools
import logging
import os
import sys
import threading
import time
from typing import NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps


class Options(NamedTuple):
  """How a trainer trains."""
  steps: int = 10**6  # the last global step
  initial: float = 0.0  # what the variables begin at
  step_seconds: float = 0.0  # how long a step takes, at least
  go_on: Optional[str] = None  # a file: no step after the fiftieth ends before it is there
  checkpoint_dir: Optional[str] = None
  save_steps: Optional[int] = None  # global steps between checkpoints; None: at the ends only
  block_in_init: bool = False  # whether the initialisation never ends
  heartbeat_timeout: float = 5.0
  start_timeout: float = 60.0
  end_timeout: float = 60.0
  container: str = ""
  extra: str = ""  # the name of a further variable
  hangs_in_save: bool = False  # whether no save but the first ends
  grace: float = 25.0
  restore_until: Optional[str] = None  # a file: no restore after the first variable ends before
  ps_recovery: str = "all"
  recovery_timeout: Optional[float] = None


def serve(jobs, index, options, server_arguments):
  """A ps; prints why it ended."""
  server = tf1ps.Server(jobs, job_name="ps", task_index=index, container=options.container,
                        heartbeat_timeout=options.heartbeat_timeout,
                        start_timeout=options.start_timeout, grace=options.grace,
                        recovery_timeout=options.recovery_timeout, **server_arguments)
  print("up", flush=True)
  try:
    server.join()
  finally:
    print("joined: %s" % server.end_reason, flush=True)


def train(jobs, index, options):
  """A worker; prints each step as `step GLOBAL_STEP EVEN ODD at SECONDS`."""
  logging.basicConfig(stream=sys.stdout, format="%(asctime)s %(message)s")
  logging.getLogger("tf1ps").setLevel(logging.INFO)
  tf.disable_v2_behavior()
  server = tf1ps.Server(jobs, job_name="worker", task_index=index, container=options.container,
                        heartbeat_timeout=options.heartbeat_timeout, grace=options.grace,
                        recovery_timeout=options.recovery_timeout)
  with tf.container(options.container), tf.device(tf1ps.replica_device_setter(
      worker_device="/job:worker/task:%d" % index, cluster=jobs)):
    values = build(options)
  keywords = {}
  if options.save_steps:
    keywords["save_checkpoint_steps"] = options.save_steps
  with tf1ps.MonitoredTrainingSession(
      server.target, index == 0, options.checkpoint_dir, save_summaries_steps=None,
      scaffold=tf.train.Scaffold(init_fn=lambda scaffold, session: init_fn(options),
                                 saver=make_saver(options)),
      hooks=[tf.train.StopAtStepHook(last_step=options.steps)],
      start_timeout=options.start_timeout, end_timeout=options.end_timeout,
      ps_recovery=options.ps_recovery, **keywords) as session:
    print("session at %.3f" % time.monotonic(), flush=True)
    while not session.should_stop():
      print("step %d %d %d at %.3f" % (*session.run(values), time.monotonic()), flush=True)
  print("left at %.3f" % time.monotonic(), flush=True)


def make_saver(options):
  if options.restore_until:
    return SlowRestore(options.restore_until)
  return HangingSaver() if options.hangs_in_save else None


class SlowRestore(tf.train.Saver):
  """A saver that restores `even`, waits for a file, and restores all."""

  def __init__(self, until):
    super().__init__()
    with tf.variable_scope("", reuse=True):
      self._one = tf.train.Saver([tf.get_variable("even")])
    self._until = until

  def restore(self, session, path):
    self._one.restore(session, path)
    print("holds the restore", flush=True)
    while not os.path.exists(self._until):
      threading.Event().wait(0.02)
    super().restore(session, path)


class HangingSaver(tf.train.Saver):
  """A saver whose saves after the first one do not end."""
  saves = 0

  def save(self, *args, **kwargs):
    self.saves += 1
    if self.saves > 1:
      print("hangs in a save", flush=True)
      threading.Event().wait()
    return super().save(*args, **kwargs)


def build(options):
  """Builds the graph; returns what a step fetches, after its update."""
  step = tf.train.get_or_create_global_step()
  initial = tf.constant_initializer(options.initial)
  even = tf.get_variable("even", [], initializer=initial, use_resource=True)
  odd = tf.get_variable("odd", [], initializer=initial, use_resource=True)
  if options.extra:
    tf.get_variable(options.extra, [3], use_resource=True)
  steps = itertools.count(1)
  one = tf.numpy_function(lambda: hold(options, next(steps)), [], tf.float32)
  one.set_shape([])
  with tf.control_dependencies([one]):
    update = tf.group(even.assign_add(one), odd.assign_add(one), step.assign_add(1))
  with tf.control_dependencies([update]):
    return [tf.identity(step.read_value()), even.read_value(), odd.read_value()]


def init_fn(options):
  """What the chief calls when the variables have been initialised."""
  print("initialising", flush=True)
  if options.block_in_init:
    threading.Event().wait()


def hold(options, step):
  threading.Event().wait(options.step_seconds)
  while options.go_on and step > 50 and not os.path.exists(options.go_on):
    threading.Event().wait(0.02)
  return np.float32(1.0)
