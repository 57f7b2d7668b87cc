"""Reads the global steps of running jobs from their ps, for the benchmark that measures the jobs.

This module runs as a separate process, so that the benchmark needs no TensorFlow, and so that the
process can be in a network namespace. It answers a line of input `ADDRESS CONTAINER VARIABLES`, in
which VARIABLES is resource or ref, by a line `STEPS SECONDS`. STEPS is 0 as long as there is no
global step. A reading is one small session run on the ps.
"""
from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from tf1ps import links
from tf1ps.cluster import Task, probe_task

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Reader:
  """The process, from the side of the benchmark that asks it."""

  def __init__(self, prefix=(), environment=None, tls_dir=""):
    """Starts it.

    Args:
      prefix: the words with which its command line begins.
      environment: the environment of the process.
      tls_dir: the folder of its certificate, for jobs with encrypted links.
    """
    self._process = subprocess.Popen(
      [*prefix, sys.executable, "-m", "benchmarks.global_steps", *filter(None, [tls_dir])],
      cwd=ROOT, env=environment,
      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
      universal_newlines=True)
    self._process.stdout.readline()

  def read(self, address: str, container: str, variables: str):
    """Returns the global step and when it was read."""
    self._process.stdin.write("%s %s %s\n" % (address, container, variables))
    self._process.stdin.flush()
    answer = self._process.stdout.readline().split()
    if not answer:
      raise RuntimeError("the process that reads global steps has ended")
    return int(answer[0]), float(answer[1])

  def close(self):
    """Ends it."""
    self._process.kill()
    self._process.wait()


def _listens(address):
  if links.is_inside():
    return probe_task(Task("ps", 0, address)).is_up
  host, _, port = address.rpartition(":")
  try:
    socket.create_connection((host, int(port)), timeout=1.0).close()
    return True
  except OSError:
    return False


def main():
  """Answers lines until the input ends."""
  os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
  if sys.argv[1:]:
    links.enter(sys.argv[1])
  import tensorflow.compat.v1 as tf

  tf.disable_v2_behavior()
  sessions = {}
  print("ready", flush=True)
  for line in sys.stdin:
    address, container, variables = line.split()
    if not _listens(address):  # a session would wait, with ever longer pauses between its tries
      print(0, time.monotonic(), flush=True)
      continue
    if line not in sessions:
      graph = tf.Graph()
      with graph.as_default(), graph.container(container), tf.device("/job:ps/task:0"):
        step = tf.get_variable("global_step", [], tf.int64, trainable=False,
                               initializer=tf.zeros_initializer(),
                               use_resource=variables == "resource")
      config = tf.ConfigProto(device_filters=["/job:ps/task:0"])
      sessions[line] = tf.Session("grpc://" + address, graph=graph, config=config), step
    session, step = sessions[line]
    try:
      answer = int(session.run(step))
    except tf.errors.OpError:  # there is no global step yet
      answer = 0
    print(answer, time.monotonic(), flush=True)


if __name__ == "__main__":
  main()
