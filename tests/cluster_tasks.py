"""What the tests of cluster, state and compat run as processes: servers, and their clients."""
from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time

import tensorflow.compat.v1 as tf

from tests import harness
from tf1ps.cluster import bounded, path_check, session_config
from tf1ps.cluster import server as server_lib
from tf1ps.cluster import session as session_lib
from tf1ps.cluster.description import Cluster, Task


@contextlib.contextmanager
def stock_ps(forks, count):
  """Starts so many stock ps as processes; yields their tasks."""
  jobs = {"ps": harness.addresses(count)}
  servers = [forks.start("ps %d" % i, serve, jobs, "ps", i) for i in range(count)]
  for server in servers:
    server.wait_for("up")
  try:
    yield [Task("ps", i, address) for i, address in enumerate(jobs["ps"])]
  finally:
    for server in servers:
      server.kill()


def say(*values):
  """Prints a line that the test waits for; all of it or, if killed meanwhile, nothing."""
  sys.stdout.write(" ".join(map(str, values)) + "\n")
  sys.stdout.flush()


def stay():
  """Keeps the process until the test ends it.

  A signal that comes just before a wait begins does not end that wait: so many short ones.
  """
  never = threading.Event()
  while not never.wait(0.1):
    pass


def serve(jobs, job, index):
  """A stock server."""
  tf.train.Server(tf.train.ClusterSpec(jobs), job, index)
  say("up")
  stay()


def open_sessions_of_one_task(addresses, limit=100.0):
  """A ps and two processes' servers of one task; each open makes the ps drop the other's session.

  Says the errors of the first one's runs, by the kind that TensorFlow gave them, once a run was
  cancelled.
  """
  ps, *workers = addresses
  specs = [tf.train.ClusterSpec({"ps": [ps], "worker": [worker]}) for worker in workers]
  servers = [tf.train.Server(specs[0], "ps", 0), *(tf.train.Server(s, "worker", 0) for s in specs)]
  config = tf.ConfigProto(device_filters=["/job:ps", "/job:worker/task:0"])
  with tf.Graph().as_default():
    with tf.device("/job:worker/task:0"):
      there_and_back = tf.random_uniform([1000])
    for job in 5 * ("ps", "worker"):
      with tf.device("/job:%s/task:0" % job):
        there_and_back = there_and_back * 2 + tf.random_uniform([])
  kinds, until = {}, time.monotonic() + limit

  def run_until_it_fails(server, least=0):
    made = session_lib.BoundedSession(server.target, there_and_back.graph, config)
    # The ps may forget a run with its session: then it never ends.
    watch = threading.Timer(2.0, made.abort, [lambda: tf.errors.AbortedError(None, None, "long")])
    watch.start()
    try:
      while time.monotonic() < until:
        made.run(there_and_back.op)
        least -= 1
        if least == 0:
          return
    except tf.errors.OpError as error:
      return error
    finally:
      watch.cancel()
      made.close()

  def disturb():
    while time.monotonic() < until:
      run_until_it_fails(servers[2], 2)

  threading.Thread(target=disturb, daemon=True).start()
  while "CancelledError" not in kinds and time.monotonic() < until:
    error = run_until_it_fails(servers[1])
    if error is not None:
      cause = error.__cause__
      kinds[type(cause or error).__name__] = type(error).__name__ + ": " + str(error)
  say(json.dumps(kinds))
  os._exit(0)  # runs are under way


def check_paths(jobs, timeout):
  """A worker that checks the path to every ps; says in how many seconds, or the error."""
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  cluster = Cluster({job: dict(enumerate(addresses)) for job, addresses in jobs.items()},
                    "worker", 0)
  config = tf.ConfigProto(device_filters=["/job:ps", cluster.task.name])
  logging.getLogger("tf1ps").addHandler(logging.StreamHandler(sys.stdout))
  say("begins")
  began = time.monotonic()
  try:
    path_check.check_paths(server.target, cluster.task, cluster.tasks(), config, timeout)
    outcome = "proved"
  except path_check.PathError as error:
    outcome = str(error)
  say("%.2f s: %s" % (time.monotonic() - began, outcome))


def exchange(kind, jobs, job, limit):
  """A task of a cluster; the worker has the ps add two numbers, or gives up at the limit."""
  server = {"stock": tf.train.Server, "ours": server_lib.Server}[kind](jobs, job, 0)
  say("up")
  if job == "ps":
    stay()
  with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    total = tf.add(tf.placeholder(tf.int32, [], "value"), 2)
  session = tf.Session(server.target, graph)
  try:
    say("sum", bounded.call_within(limit, "the sum", session.run, total, {"value:0": 3}))
  except bounded.LimitExceeded:
    say("hangs")


def call_ps(jobs):
  """A worker with runs that wait for its ps."""
  os.environ.update(session_config.grpc_environment())
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  with tf.Graph().as_default(), tf.device("/job:ps/task:0"):
    value = tf.constant(1)
    while True:
      try:
        return tf.Session(server.target).run(value)
      except tf.errors.UnavailableError:
        pass  # TensorFlow 2.16 reports a closed connection, and later ones connect again
