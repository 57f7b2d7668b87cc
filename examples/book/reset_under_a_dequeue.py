"""A container is reset while a client waits at a queue in it: on TensorFlow 2.x the ps dies.

Example B15. Section: variables.
Mechanism: `tf.Session.reset` and a pending `dequeue_many`.
The example starts two ps, each a process of its own. On each ps a client has put one element into a
queue and waits for two.
1. `tf.Session.reset` of the container: TensorFlow 2.x destroys the queue under the waiting
   operation, and the process of the ps with it ("has died"). All other state of that ps is lost,
   too. On 1.15 the ps "lives", and the client gets a CancelledError.
2. tf1ps' reset first ends the calls that wait at queues of tf1ps, and at other queues that you name
   to it. Then it clears the container. The ps lives, and each client gets an error.

Do not close a session on a dead ps: on 2.x `close` hangs, and the interpreter's exit hangs, too. So
this program leaves by os._exit.
Toolkit: bare TensorFlow, and tf1ps (docs/cluster.md#containers).

    $ python examples/book/reset_under_a_dequeue.py
    tf.Session.reset: the ps ...
    tf1ps' reset: a waiting get: QueueReset
    tf1ps' reset: a stock queue's dequeue_many: OutOfRangeError
    tf1ps' reset: the ps lives
"""

import contextlib
import functools
import os
import subprocess
import sys
import threading
import time
import traceback

import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.cluster import from_cluster_spec
from tf1ps.launch import find_free_addresses
from tf1ps.state import QueueError, reset_containers

flags.DEFINE_list("hosts", None, "Of two ps, each a cluster of its own; none: free ones.")
flags.DEFINE_bool("serve", False, "Be the first of them.")

CONTAINER = "jobs/one"


class Waiting(threading.Thread):
  """A client that waits in a thread, and keeps the error of its call."""

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
  while session.run(size):  # until the dequeue has taken the element
    assert time.time() < end, "the dequeue_many never began"
    time.sleep(0.01)
  return waiting


def waiting_client(target):
  """A client that waits at a queue of tf1ps; returns its Waiting."""
  with tf.Graph().as_default() as graph:
    queue = tf1ps.FIFOQueue(10, [tf.int32], [[]], shared_name="ours",
                            device="/job:ps/task:0", container=CONTAINER)
  session = tf.Session(target, graph=graph)
  queue.put(session, 1)
  return Waiting(functools.partial(queue.get, session, 2, timeout=60))


def state_of(process, seconds):
  """Waits so many seconds, and says whether the process lives."""
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
  print("tf1ps' reset: a waiting get:", ours.error)
  print("tf1ps' reset: a stock queue's dequeue_many:", stock.error)
  print("tf1ps' reset: the ps", state_of(process, 1), flush=True)


def main(_):
  """Starts two ps; or is one."""
  tf.disable_v2_behavior()
  hosts = flags.FLAGS.hosts or find_free_addresses(2)
  if flags.FLAGS.serve:
    server = tf.train.Server({"ps": hosts[:1]}, "ps", 0)
    print("ready", flush=True)
    server.join()  # tf1ps-doctor: ignore[server-join-never-ends]
  processes = [subprocess.Popen([sys.executable, sys.argv[0], "--hosts=" + host, "--serve"],
                                stdout=subprocess.PIPE) for host in hosts]
  status = 1
  try:
    for process in processes:
      process.stdout.readline()  # an early client tries again only after seconds
    stock_reset(hosts[0], processes[0])
    our_reset(hosts[1], processes[1])
    status = 0
  except Exception:  # printed here, because os._exit prints nothing
    traceback.print_exc()
  for process in processes:
    process.kill()
    process.wait()
  os._exit(status)


if __name__ == "__main__":
  app.run(main)
