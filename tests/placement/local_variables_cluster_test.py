"""Local variables in a cluster of real processes: 1 ps and 2 workers.

Each worker builds the same graph with TensorFlow's setter and with ours, and is told through a
pipe what to run. Where an op ran is read from the step stats, not from its device.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import traceback

import pytest
import tensorflow.compat.v1 as tf

from tf1ps.placement import device_setter

LIMIT = 60  # seconds for a start or a step, many times what it takes
SETTERS = {"stock": tf.train.replica_device_setter, "ours": device_setter.replica_device_setter}


def run_task(spec, job_name, task_index, pipe):
  """Serves one task; a worker answers (setter, use_resource, step, value) until the pipe ends."""
  server = tf.train.Server(spec, job_name=job_name, task_index=task_index)
  sessions = {}
  try:
    while True:
      setter_name, use_resource, step, value = pipe.recv()
      key = setter_name, use_resource
      if key not in sessions:
        sessions[key] = MeanSession(spec, task_index, server.target, *key)
      pipe.send(getattr(sessions[key], step)(value))
  except EOFError:
    os._exit(0)  # a server ends with its process only, and TensorFlow's exit may wait for others
  except BaseException:
    traceback.print_exc()
    os._exit(1)


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


@pytest.fixture(scope="module")
def ask():
  """Starts the cluster; yields a function that asks both workers, one after the other."""
  with socket.socket() as a, socket.socket() as b, socket.socket() as c:
    for listener in (a, b, c):
      listener.bind(("127.0.0.1", 0))
    ps, worker0, worker1 = ["127.0.0.1:%d" % s.getsockname()[1] for s in (a, b, c)]
  spec = {"ps": [ps], "worker": [worker0, worker1]}
  context = multiprocessing.get_context("forkserver")
  context.set_forkserver_preload(["tensorflow.compat.v1"])
  processes, pipes = [], []
  try:
    for task in [("ps", 0), ("worker", 0), ("worker", 1)]:
      ours, theirs = context.Pipe()
      process = context.Process(target=run_task, args=(spec,) + task + (theirs,), daemon=True)
      process.start()
      theirs.close()  # else the pipe would not end when the process does
      processes.append(process)
      pipes.append(ours)

    def ask_workers(setter_name, use_resource, step, values=(None, None)):
      answers = []
      for pipe, value in zip(pipes[1:], values):
        pipe.send((setter_name, use_resource, step, value))
        assert pipe.poll(LIMIT), "no answer to %s within %d s" % (step, LIMIT)
        answers.append(pipe.recv())
      return answers

    yield ask_workers
  finally:
    for pipe in pipes:
      pipe.close()
    for process in processes:
      process.join(10)
      if process.is_alive():
        process.kill()
        process.join(10)


@pytest.mark.parametrize("setter_name, places, means, epochs", [
    ("stock", [[("ps", 0)], [("ps", 0)]], [5.0, 5.0], [3, 0]),
    ("ours", [[("worker", 0)], [("worker", 1)]], [0.0, 10.0], [3, 3]),
])
@pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])
def test_each_worker_has_its_own(ask, setter_name, places, means, epochs, use_resource):
  ask(setter_name, use_resource, "init")
  assert ask(setter_name, use_resource, "update", (0.0, 10.0)) == places
  assert ask(setter_name, use_resource, "mean") == means
  assert ask(setter_name, use_resource, "epochs") == epochs
