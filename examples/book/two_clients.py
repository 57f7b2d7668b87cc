"""Two clients, one variable: state belongs to the cluster, not to the session that made it.

Example B13. Section: variables.
Mechanism: a variable on a ps lives as long as its server.
The function `client` is the whole lesson: a graph and a session of its own, a variable, and 1 that
is added. The first client is connected to worker 0, initialises x and adds 1. Its session ends. The
second client is connected to worker 1 and initialises nothing: it finds x, and adds 1.
Then two sessions are open at the same time, and the second sees what the first has done. Two local
sessions share nothing, even if they run the same graph.
Outdated in the book: its variable is not pinned, as y is here. On TensorFlow 2.x an operation
without a job runs on the task that its session is connected to. So each client has a y of its own,
and the second client gets a FailedPreconditionError. TensorFlow 1.x takes the first task of the
cluster for both, here the ps, and prints 2.0. Pin each variable that clients share.
Toolkit: bare TensorFlow; by hand, the servers end by a queue of tf1ps (docs/queues.md#a-barrier).
tf1ps.replica_device_setter does the pinning for whole models.

    $ python examples/book/two_clients.py
    first client: x 1.0; y, not pinned, 1.0
    second client: x 2.0; y, not pinned, ...
    both at the same time: 1.0, 2.0
    two local sessions: 1.0, FailedPreconditionError

There, one process has the servers and all sessions. By hand, in two shells, each client is a
process, as in the book:

    1$ python examples/book/two_clients.py first \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    first client: x 1.0; y, not pinned, 1.0
    1$ python examples/book/two_clients.py second \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    second client: x 2.0; y, not pinned, ...
    2$ python examples/book/two_clients.py serve \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
"""

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses
from tf1ps.state import DoneQueues

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")

CLIENTS = ["first", "second"]
PS = "/job:ps/task:0"
# Of each operation; without it, a client whose ps has gone waits forever.
LIMIT = tf.ConfigProto(operation_timeout_in_ms=60000)


def client(target, initialise, name, device):
  """Finds the variable of that name, or makes it, and adds 1; returns its value."""
  with tf.Graph().as_default(), tf.Session(target, config=LIMIT) as session:
    with tf.device(device):
      x = tf.Variable(0.0, name=name)
      increment = tf.assign(x, x + 1)
    if initialise:
      session.run(x.initializer)
    session.run(increment)
    return float(session.run(x))


def two_sessions(targets, device):
  """Runs one graph in two sessions that are open at the same time; only the first initialises."""
  with tf.Graph().as_default() as graph, tf.device(device):
    x = tf.Variable(0.0, name="x")
    increment = tf.assign(x, x + 1)
    with tf.Session(targets[0], graph) as first, tf.Session(targets[1], graph) as second:
      first.run(x.initializer)
      return "%s, %s" % (first.run(increment), or_error(second.run, increment))


def or_error(function, *arguments):
  """Returns the result of a call, or the name of the error of a missing value."""
  try:
    return function(*arguments)
  except tf.errors.FailedPreconditionError as error:
    return type(error).__name__


def be_client(number, worker):
  """Is the first (0) or second (1) client, at the address of its worker."""
  target, initialise = "grpc://" + worker, number == 0
  print("%s client: x %s; y, not pinned, %s" % (
    CLIENTS[number], client(target, initialise, "x", PS),
    or_error(client, target, initialise, "y", None)), flush=True)


def main(argv):
  """Serves, or is one of the clients, or all of them."""
  role = argv[1] if len(argv) > 1 else None
  if role not in CLIENTS + ["serve", None]:
    raise app.UsageError("%s: it must be first, second, serve, or nothing for all three" % role)
  tf.disable_v2_behavior()
  ps, *workers = flags.FLAGS.hosts or find_free_addresses(3)
  cluster = {"ps": [ps], "worker": workers}
  tasks = [] if role in CLIENTS else [("ps", 0), ("worker", 0), ("worker", 1)]
  servers = [tf.train.Server(cluster, job, index) for job, index in tasks]
  for number, name in enumerate(CLIENTS):
    if role in (None, name):
      be_client(number, workers[number])
  if not role:
    print("both at the same time:", two_sessions(["grpc://" + worker for worker in workers], PS))
    print("two local sessions:", two_sessions(["", ""], None))
    return
  done = DoneQueues(1, ["the second client"], places=[PS], container="")
  with tf.Session("grpc://" + ps, config=LIMIT) as session:
    if servers:
      done.wait(session, timeout=120.0, linger=1.5)  # the client's session is closing meanwhile
    elif role == "second":
      done.report(session, 0)


if __name__ == "__main__":
  app.run(main)
