"""The tasks of local_variables_cluster_test.py: servers, and what workers do when told to.

Where an op ran is read from the step stats, not from its device.
"""
from __future__ import annotations

import multiprocessing.connection

import tensorflow.compat.v1 as tf

from tf1ps.placement import device_setter

SETTERS = {"stock": tf.train.replica_device_setter, "ours": device_setter.replica_device_setter}


def run_task(spec, job_name, task_index, address):
  """Serves one task; a worker answers (setter, use_resource, step, value) until the pipe ends."""
  server = tf.train.Server(spec, job_name=job_name, task_index=task_index)
  pipe = multiprocessing.connection.Client(address)
  sessions = {}
  try:
    while True:
      setter_name, use_resource, step, value = pipe.recv()
      key = setter_name, use_resource
      if key not in sessions:
        sessions[key] = MeanSession(spec, task_index, server.target, *key)
      pipe.send(getattr(sessions[key], step)(value))
  except EOFError:
    return 0


class MeanSession(object):
  """A worker's graph with a mean and a counter of epochs, and its session."""

  def __init__(self, spec, task_index, target, setter_name, use_resource):
    setter = SETTERS[setter_name](
        cluster=spec, worker_device="/job:worker/task:%d" % task_index)
    with tf.Graph().as_default() as graph, tf.device(setter):
      with tf.variable_scope("%s_%d" % (setter_name, use_resource), use_resource=use_resource):
        self._value = tf.placeholder(tf.float32, [])
        self._mean, self._update = tf.metrics.mean(self._value)
        self._limited = tf.train.limit_epochs(tf.constant(7.0), num_epochs=3)
      self._init = tf.local_variables_initializer()
    config = tf.ConfigProto(
        device_filters=["/job:ps", "/job:worker/task:%d" % task_index],
        # So that each op shows in the step stats under its own name.
        graph_options=tf.GraphOptions(optimizer_options=tf.OptimizerOptions(
            opt_level=tf.OptimizerOptions.L0)))
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    self._session = tf.Session(target, graph=graph, config=config)

  def init(self, _):
    """Initialises; a shared variable is initialised again by each worker."""
    self._session.run(self._init)

  def update(self, value):
    """Updates the mean; returns the job and task on which each op on it ran that adds to it."""
    metadata = tf.RunMetadata()
    self._session.run(self._update, {self._value: value}, run_metadata=metadata,
                      options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE))
    places = set()
    for device in metadata.step_stats.dev_stats:
      if device.device == "/host:CPU":  # TensorFlow 1.15 lists what ran in this process again
        continue
      if any("/mean/AssignAdd" in node.node_name for node in device.node_stats):
        spec = tf.DeviceSpec.from_string(device.device)
        places.add((spec.job, spec.task))
    return sorted(places)

  def mean(self, _):
    """Returns the mean as this worker reads it."""
    return float(self._session.run(self._mean))

  def epochs(self, _):
    """Returns how many times the limited tensor can be had."""
    count = 0
    try:
      while True:
        self._session.run(self._limited)
        count += 1
    except tf.errors.OutOfRangeError:
      return count
