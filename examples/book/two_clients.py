"""Two clients, one variable: state belongs to the cluster, not to the session that made it.

Example B13. Section: variables.
Mechanism: a variable on a ps lives as long as its server.
One process serves a ps and two workers. Two clients use these servers at the same time. Each client
is a process with a graph of its own. The first client is connected to worker 0: it initialises x
and adds 1. The second client is connected to worker 1. It initialises nothing: it finds x, and adds
1. The first client reads x again, and ends. The second client then finds x unchanged. A barrier
makes the clients take turns, so that the numbers are exact. In the end the servers end, too.
Two local sessions share nothing, even if they run the same graph.
Outdated in the book: its variable is not pinned, as y is here. On TensorFlow 2.x an operation
without a job runs on the task that its session is connected to. So each client has a y of its own,
and the second client gets a FailedPreconditionError. TensorFlow 1.x takes the first task of the
cluster for both, here the ps, and prints 2.0. Pin each variable that clients share.
Toolkit: bare TensorFlow; the clients meet at a barrier of tf1ps, and the servers end by its queues
(docs/barriers.md). tf1ps.replica_device_setter does the pinning for whole models.

    $ python examples/book/two_clients.py
    first client: x 1.0, then 2.0 by the second client; y, not pinned, 1.0
    second client: x 2.0, and 2.0 after the end of the first client; y, not pinned, ...
    two local sessions: 1.0, FailedPreconditionError

That starts all three processes on this machine. By hand, each in a shell of its own and in any
order:

    1$ python examples/book/two_clients.py first \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    2$ python examples/book/two_clients.py second \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    3$ python examples/book/two_clients.py serve \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
"""

import argparse

import tensorflow.compat.v1 as tf

from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import Barrier, DoneQueues

PS = "/job:ps/task:0"
LIMIT = 60.0  # seconds for each operation of a client


class Counter:
  """A variable on a device, and the operation that adds 1."""

  def __init__(self, name, device):
    with tf.device(device):
      self.variable = tf.Variable(0.0, name=name)
      self._increment = tf.assign(self.variable, self.variable + 1)

  def add(self, session):
    """Adds 1 and returns the value, or the name of the error."""
    try:
      session.run(self._increment)
      return self.read(session)
    except tf.errors.FailedPreconditionError as error:
      return type(error).__name__

  def read(self, session):
    """Returns the value."""
    return float(session.run(self.variable))


def connect(host):
  """Returns a session of the server at an address."""
  return tf.Session("grpc://" + host, config=tf.ConfigProto(
    operation_timeout_in_ms=int(1000 * LIMIT)))


def first_client(host, x, y, barrier, done):
  """Makes the variables, and ends before the second client."""
  with connect(host) as session:
    session.run([x.variable.initializer, y.variable.initializer])
    own, not_pinned = x.add(session), y.add(session)
    barrier.wait(session, timeout=LIMIT)  # x is there
    barrier.wait(session, timeout=LIMIT)  # the second client has added 1
    print("first client: x %s, then %s by the second client; y, not pinned, %s" % (
      own, x.read(session), not_pinned), flush=True)
  with connect(host) as session:
    barrier.wait(session, timeout=LIMIT)  # the session that made x has ended
    done.report(session, 0)


def second_client(host, x, y, barrier, done):
  """Finds the variable of the first client, and ends after it."""
  with connect(host) as session:
    barrier.wait(session, timeout=LIMIT)
    own, not_pinned = x.add(session), y.add(session)
    barrier.wait(session, timeout=LIMIT)
    barrier.wait(session, timeout=LIMIT)
    print("second client: x %s, and %s after the end of the first client; y, not pinned, %s" % (
      own, x.read(session), not_pinned))
    done.report(session, 1)


def serve(cluster, done):
  """Serves all three tasks until both clients have ended."""
  servers = [tf.train.Server(cluster, job, index)
             for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]]
  with tf.Session(servers[0].target) as session:
    done.wait(session, timeout=120.0, linger=1.5)  # the last session is closing meanwhile


def two_local_sessions():
  """Runs one graph in two sessions without a server."""
  counter = Counter("x", None)
  with tf.Session() as first, tf.Session() as second:
    first.run(counter.variable.initializer)
    print("two local sessions: %s, %s" % (counter.add(first), counter.add(second)))


def main():
  """Serves, or is one of the clients."""
  parser = argparse.ArgumentParser()
  parser.add_argument("role", nargs="?", choices=["first", "second", "serve"],
                      help="none: all of them")
  parser.add_argument("--hosts", default=",".join(find_free_addresses(3)),
                      help="of the ps and two workers")
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  if not flags.role:
    run_together(main, *[[role, "--hosts=" + flags.hosts] for role in ("first", "second", "serve")])
    return two_local_sessions()
  ps, *workers = flags.hosts.split(",")
  done = DoneQueues(num_workers=2, places=[PS])
  if flags.role == "serve":
    return serve({"ps": [ps], "worker": workers}, done)
  index = ["first", "second"].index(flags.role)
  x, y = Counter("x", PS), Counter("y", None)
  barrier = Barrier("clients", num_tasks=2, task_index=index, device=PS)
  [first_client, second_client][index](workers[index], x, y, barrier, done)


if __name__ == "__main__":
  main()
