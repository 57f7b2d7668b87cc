"""Two clients, one variable: state belongs to the cluster, not to the session that made it.

Example B13. Section: variables.
Mechanism: a variable on a ps lives as long as its server.
The first shell serves a ps and two workers. The two clients are processes of their own, one after
the other. The first client is connected to worker 0: it initialises x, adds 1, and ends. The second
client is connected to worker 1. It has a graph of its own and initialises nothing: it finds x with
the value that the first client has left, and adds 1. Then it releases the servers.
Two local sessions share nothing, even if they run the same graph.
Outdated in the book: its variable is not pinned, as y is here. On TensorFlow 2.x an operation
without a job runs on the task that its session is connected to. So each client has a y of its own,
and the second client gets a FailedPreconditionError. TensorFlow 1.x takes the first task of the
cluster for both, here the ps, and prints 2.0. Pin each variable that clients share.
Toolkit: bare TensorFlow; the servers end by a queue of tf1ps (docs/barriers.md).
tf1ps.replica_device_setter does the pinning for whole models.

    1$ python examples/book/two_clients.py serve \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    2$ python examples/book/two_clients.py first \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    first client: x on the ps 1.0, y not pinned 1.0
    2$ python examples/book/two_clients.py second \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    second client: x on the ps 2.0, y not pinned ...

Two sessions without servers:

    $ python examples/book/two_clients.py local
    local sessions: first 1.0, second FailedPreconditionError
"""

import argparse

import tensorflow.compat.v1 as tf

from tf1ps.state import DoneQueues


def make_counter(name, device):
  """Makes a counter on a device; returns it with the operation that adds 1."""
  with tf.device(device):
    counter = tf.Variable(0.0, name=name)
    return counter, tf.assign(counter, counter + 1)


def use(session, counter, increment, init):
  """Adds 1 and returns the counter, or the name of the error."""
  if init:
    session.run(counter.initializer)
  try:
    session.run(increment)
    return float(session.run(counter))
  except tf.errors.FailedPreconditionError as error:
    return type(error).__name__


def done_queues():
  """The queue on the ps by which the clients report their ends."""
  return DoneQueues(num_workers=2, places=["/job:ps/task:0"])


def serve(cluster):
  """Serves all three tasks until the second client has ended."""
  servers = [tf.train.Server(cluster, job, index)
             for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]]
  with tf.Session(servers[0].target) as session:
    done_queues().wait(session, timeout=120.0, linger=1.5)  # the last session is closing meanwhile


def client(cluster, name):
  """One of the two programs: a graph and a session of its own."""
  index = ["first", "second"].index(name)
  x, increment_x = make_counter("x", "/job:ps/task:0")
  y, increment_y = make_counter("y", None)
  done = done_queues()
  with tf.Session("grpc://" + cluster["worker"][index]) as session:
    print("%s client: x on the ps %s, y not pinned %s" % (
      name, use(session, x, increment_x, init=index == 0),
      use(session, y, increment_y, init=index == 0)))
    done.report(session, index)


def two_local_sessions():
  """Two sessions without a server, on one graph."""
  x, increment = make_counter("x", None)
  with tf.Session() as first, tf.Session() as second:
    print("local sessions: first %s, second %s" % (
      use(first, x, increment, init=True), use(second, x, increment, init=False)))


def main():
  """Serves, or is one of the clients."""
  parser = argparse.ArgumentParser()
  parser.add_argument("role", choices=["serve", "first", "second", "local"])
  parser.add_argument("--hosts", default="", help="of the ps and two workers")
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  ps, *workers = flags.hosts.split(",")
  cluster = {"ps": [ps], "worker": workers}
  if flags.role == "serve":
    serve(cluster)
  elif flags.role == "local":
    two_local_sessions()
  else:
    client(cluster, flags.role)


if __name__ == "__main__":
  main()
