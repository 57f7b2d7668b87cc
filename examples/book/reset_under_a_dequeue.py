"""A container is reset while somebody is blocked on a queue in it: on TensorFlow 2.x the ps dies.

Example B15. Section: variables.
Mechanism: `tf.Session.reset` and a pending `dequeue_many`.
Two ps are started, each a process of its own. On each, a client has put one element into a queue
and waits for two.
1. `tf.Session.reset` of the container: TensorFlow 2.x destroys the queue under the operation that
   waits there, and the process of the ps with it ("has died"); on 1.15 it "lives", and the client
   gets a CancelledError. Whatever else was on that ps is lost as well.
2. tf1ps' reset ends first what waits on queues of tf1ps, and what waits on those that are named to
   it, and then clears the container. The ps lives, and each client is told.
Do not close a session on a dead ps: on 2.x `close` hangs, and so would the interpreter's exit (this
program leaves by os._exit).
Toolkit: both forms. docs/containers.md

    $ python examples/book/reset_under_a_dequeue.py --hosts=127.0.0.1:2221,127.0.0.1:2222
    tf.Session.reset: the ps ...
    tf1ps' reset: who waits in get: QueueReset
    tf1ps' reset: who waits in a stock queue's dequeue_many: OutOfRangeError
    tf1ps' reset: the ps lives
"""

import argparse
import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
import traceback

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster import from_cluster_spec
from tf1ps.state import QueueError, reset_containers

CONTAINER = "jobs/one"


class Waiting(threading.Thread):
  """A client that waits; its error is kept."""

  def __init__(self, call):
    super().__init__(daemon=True)
    self.call = call
    self.error = "no error"
    self.start()

  def run(self):
    """Makes the call."""
    try:
      self.call()
    except (tf.errors.OpError, QueueError) as error:
      self.error = type(error).__name__


def blocked_client(target):
  """A client of TensorFlow's queue, blocked on the ps; returns its Waiting."""
  with tf.Graph().as_default() as graph:
    with tf.device("/job:ps/task:0"), tf.container(CONTAINER):
      queue = tf.queue.FIFOQueue(10, [tf.int32], [[]], shared_name="stock")
    enqueue, two, size = queue.enqueue(1), queue.dequeue_many(2), queue.size()
  session = tf.Session(target, graph=graph)
  session.run(enqueue)
  waiting = Waiting(functools.partial(session.run, two))
  end = time.time() + 30
  while session.run(size):  # until it has taken the one, and waits for another
    assert time.time() < end, "the dequeue_many never began"
    time.sleep(0.01)
  return waiting


def waiting_client(target):
  """A client of tf1ps' queue, waiting likewise."""
  with tf.Graph().as_default() as graph:
    queue = tf1ps.FIFOQueue(10, [tf.int32], [[]], shared_name="ours",
                            device="/job:ps/task:0", container=CONTAINER)
  session = tf.Session(target, graph=graph)
  queue.put(session, 1)
  return Waiting(functools.partial(queue.get, session, 2, timeout=60))


def state_of(process, seconds):
  """Says whether a process is still there after so many seconds."""
  try:
    process.wait(seconds)
    return "has died"
  except subprocess.TimeoutExpired:
    return "lives"


def stock_reset(host, process):
  """TensorFlow's reset."""
  blocked_client("grpc://" + host)
  with contextlib.suppress(tf.errors.OpError):
    tf.Session.reset(  # tf1ps-doctor: ignore[reset-breaks-sessions]
      "grpc://" + host, [CONTAINER], tf.ConfigProto(operation_timeout_in_ms=3000))
  print("tf.Session.reset: the ps", state_of(process, 2), flush=True)


def our_reset(host, process):
  """tf1ps' reset, under two clients."""
  ours, stock = waiting_client("grpc://" + host), blocked_client("grpc://" + host)
  reset_containers(from_cluster_spec({"ps": [host]}, "ps", 0), [CONTAINER], queues=["stock"])
  for waiting in (ours, stock):
    waiting.join(30)
  print("tf1ps' reset: who waits in get:", ours.error)
  print("tf1ps' reset: who waits in a stock queue's dequeue_many:", stock.error)
  print("tf1ps' reset: the ps", state_of(process, 1), flush=True)


def main():
  """Starts two ps; or is one."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--hosts", required=True, help="of two ps, each a cluster of its own")
  parser.add_argument("--serve", action="store_true", help="be the first of them")
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  hosts = flags.hosts.split(",")
  if flags.serve:
    server = tf.train.Server({"ps": hosts[:1]}, "ps", 0)
    print("ready", flush=True)
    server.join()  # tf1ps-doctor: ignore[server-join-never-ends]
  processes = [subprocess.Popen([sys.executable, sys.argv[0], "--hosts=" + host, "--serve"],
                                stdout=subprocess.PIPE) for host in hosts]
  status = 1
  try:
    for process in processes:
      process.stdout.readline()  # a client that comes too early would ask again only seconds later
    stock_reset(hosts[0], processes[0])
    our_reset(hosts[1], processes[1])
    status = 0
  except Exception:  # to be printed, since there is no way out but os._exit
    traceback.print_exc()
  for process in processes:
    process.kill()
    process.wait()
  os._exit(status)


if __name__ == "__main__":
  main()
