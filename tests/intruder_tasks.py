"""What the tests of links run as processes: programs in a namespace, and strangers in another."""
from __future__ import annotations

import socket
import ssl
import threading
import urllib.request

import tensorflow.compat.v1 as tf

from tests import harness, links_tasks, program_tasks, strangers
from tests.cluster_tasks import say
from tf1ps import links
from tf1ps.cluster import call_within
from tools.chaos.network import enter

_LIMIT = 8.0  # seconds for what shall not come


def run_inside(namespace, name, argv, folder):
  """Runs a program of tf1ps in a network namespace; returns its exit code."""
  enter(namespace)
  return program_tasks.run_program(name, argv, folder)


def read_global_step(namespace, address, folder=None, limit=_LIMIT):
  """Reads the global step of a job from a ps, as TensorFlow lets anyone; says it or the error.

  With a `folder`, by links with the certificate there. `limit` is for a read that shall not come.
  """
  enter(namespace)
  if folder is not None:
    links.enter(folder)
  with tf.Graph().as_default() as graph, tf.device("/job:ps/task:0"):
    handle = tf.raw_ops.VarHandleOp(
      dtype=tf.int64, shape=[], shared_name="global_step", container="job")
    value = tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64)
  session = tf.Session("grpc://" + address, graph, tf.ConfigProto(device_filters=["/job:ps"]))
  try:
    say("read", call_within(limit, "the read", session.run, value))
  except Exception as error:
    say("nothing:", type(error).__name__)


def shake_hands(namespace, address, folder):
  """Speaks TLS with a ps, with a certificate or without; says what comes back."""
  enter(namespace)
  host, port = address.rsplit(":", 1)
  try:
    with socket.create_connection((host, int(port)), harness.LIMIT) as connection:
      with links_tasks.context_of(folder).wrap_socket(connection) as link:
        link.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        say("read", link.recv(100))
  except (ssl.SSLError, OSError) as error:
    say("nothing:", error)


def hold_half_open(address, namespace=None):
  """Keeps 300 connections half-open, renewed every 4 s, until it is killed."""
  if namespace is not None:
    enter(namespace)
  pause = threading.Event()
  while True:
    try:
      with strangers.half_open(address, 300):
        say("open")
        pause.wait(4.0)
    except OSError:  # the task is away
      pause.wait(0.1)


def scrape(port):
  """Returns the metrics at a port of this machine."""
  opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
  return opener.open("http://127.0.0.1:%s/metrics" % port, timeout=harness.LIMIT).read().decode()
