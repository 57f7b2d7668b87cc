"""Two clients, one variable: state belongs to the cluster, not to the session that made it.

Example B13. Section: variables.
Mechanism: variables on a ps, which live as long as their server; beside it local sessions.
A ps and two workers are started. The first client is connected to worker 0: it initialises x, adds
1, and leaves. The second one is connected to worker 1, has a graph of its own, and initialises
nothing: it finds x where the first one has left it. Two local sessions share nothing, even if they
run the very same graph.
Outdated in the book: its x is not pinned. An operation without a job runs on TensorFlow 2.x on the
task that the session is connected to, so each client has an x of its own, and the second one a
FailedPreconditionError. TensorFlow 1.x takes the first task of the cluster for both, here the ps,
which is why the old form worked (it prints 2.0 there). Pin whatever is shared.
Toolkit: bare TensorFlow. tf1ps.replica_device_setter does the pinning for whole models.

    $ python examples/book/two_clients.py --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    on the ps: first client 1.0, second client 2.0
    not pinned: first client 1.0, second client ...
    local sessions: first 1.0, second FailedPreconditionError
"""

import argparse

import tensorflow.compat.v1 as tf


def make_counter(device):
  """Makes the counter x on a device; returns it with the operation that adds 1."""
  with tf.device(device):
    x = tf.Variable(0.0, name="x")
    return x, tf.assign(x, x + 1)


def use(session, x, increment, init):
  """Adds 1 and returns x, or the name of the error."""
  if init:
    session.run(x.initializer)
  try:
    session.run(increment)
    return float(session.run(x))
  except tf.errors.FailedPreconditionError as error:
    return type(error).__name__


def client(target, device, init):
  """What each of the two programs does: a graph and a session of its own."""
  with tf.Graph().as_default():
    x, increment = make_counter(device)
    with tf.Session(target) as session:
      return use(session, x, increment, init)


def two_local_sessions():
  """Two sessions without a server, on one graph."""
  with tf.Graph().as_default() as graph:
    x, increment = make_counter(None)
    with tf.Session(graph=graph) as first, tf.Session(graph=graph) as second:
      return use(first, x, increment, init=True), use(second, x, increment, init=False)


def main():
  """Starts the servers, and is one client after the other."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--hosts", required=True, help="of the ps and two workers")
  ps, *workers = parser.parse_args().hosts.split(",")
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": workers}
  servers = [tf.train.Server(cluster, job, index)
             for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]]
  masters = [server.target for server in servers[1:]]
  said = "%s: first client %s, second client %s"
  for name, device in ("on the ps", "/job:ps/task:0"), ("not pinned", None):
    print(said % (name, client(masters[0], device, init=True),
                  client(masters[1], device, init=False)))
  print("local sessions: first %s, second %s" % two_local_sessions())


if __name__ == "__main__":
  main()
