"""Starts the tasks of a cluster, and programs that use it, as processes of this machine.

This file is a helper of the exercises. One process imports TensorFlow and forks all others, so that
a dozen processes cost one import. Each fork is a process of its own, like one that a shell starts.
"""

import multiprocessing.connection
import os
import time

import tensorflow.compat.v1 as tf

from tf1ps.launch import ForkServer, LocalTask


def forks_of(*modules):
  """Returns a context that starts processes; at its end it kills those that still run."""
  return ForkServer(["tensorflow.compat.v1"] + list(modules))


def start(forks, name, function, *args):
  """Starts a function of a module as a process; returns its `TaskProcess`."""
  return forks.start_task(LocalTask(name, function, args))


def start_servers(forks, hosts):
  """Starts a server at each address, all of the job `worker`. They serve until they are killed."""
  return [start(forks, "worker %d" % index, serve, hosts, index) for index in range(len(hosts))]


def serve(hosts, index):
  """Serves as one task, in a process of its own."""
  server = tf.train.Server({"worker": hosts}, "worker", index)
  server.join()  # tf1ps-doctor: ignore[server-join-never-ends]


def finish(forks, process, limit=300.0):
  """Waits until a process has ended, `limit` seconds at most; returns the lines that it printed."""
  until = time.monotonic() + limit
  while process.exit_code is None:
    if time.monotonic() > until:
      raise RuntimeError("%s had not ended after %g s" % (process.name, limit))
    multiprocessing.connection.wait([forks], 1.0)
    forks.take()
  with os.fdopen(process.output, errors="replace") as output:
    lines = output.read().splitlines()
  if process.exit_code:
    raise RuntimeError("%s ended with %d:\n%s" % (
      process.name, process.exit_code, "\n".join(lines[-20:])))
  return lines
