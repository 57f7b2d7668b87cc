"""Two problems on one cluster, kept apart by a container, which can be reset by its name.

Example B15. Section: variables.
Mechanism: containers. A server finds state by container and name.
The plain case first: one x is in the default container, another x is in the container my-problem-1.
These are two variables of one name. `tf.Session.reset` of my-problem-1 clears the second one and
leaves the first. There are three traps:
1. The book puts the container around `session.run`, where it does nothing. Put it around the
   construction.
2. The book's name, my_problem_1, has a `_`, which is not legal for queues and ref variables.
   (Resource variables accept it.) The error appears at the first run.
3. `tf.Session.reset` also ends all sessions of the server that gets the call. And on TensorFlow 2.x
   it kills a ps on which a client waits at a queue of the container (reset_under_a_dequeue.py).

tf1ps removes the traps: it refuses a container that has no effect and an illegal name, and its
reset ends no session (docs/cluster.md#containers).
Toolkit: bare TensorFlow, and tf1ps.

    $ python examples/book/apart_by_container.py
    two containers: x 1.0, x in the container 5.0
    a new session after Session.reset: x 1.0, x in the container FailedPreconditionError
    1. tf.container around session.run: counts in the shared x, 2.0
    1. tf1ps' around session.run: ContainerError
    2. tf.container('my_problem_1'): InvalidArgumentError
    2. tf1ps' 'my_problem_1': ValueError, ... 'my-problem-1' would do
    3. the session after Session.reset: AbortedError
    3. the same session after tf1ps' reset: x 1.0, x in the container FailedPreconditionError
"""

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.cluster import from_cluster_spec
from tf1ps.launch import find_free_addresses
from tf1ps.state import ContainerError, check_container_name, container_scope, reset_containers

flags.DEFINE_list("hosts", None, "Of the ps and the worker; none: free ones.")

PS = "/job:ps/task:0"
NAME = "my-problem-1"


def two_in_two_containers():
  """Builds x in the default container, and x in the other one."""
  with tf.device(PS):
    x = tf.Variable(1.0, name="x")
    with tf.container(NAME):  # or tf1ps' container_scope
      inner = tf.Variable(5.0, name="x")
  return x, inner


def values(session, *variables):
  """Returns the values of two variables as text, or the errors of reading them."""
  said = []
  for variable in variables:
    try:
      said.append("%s" % session.run(variable))
    except tf.errors.OpError as error:
      said.append(type(error).__name__)
  return "x %s, x in the container %s" % tuple(said)


def round_session_run(target, container):
  """The book's form: it builds nothing inside the container."""
  with tf.Graph().as_default(), tf.Session(target) as session:
    with tf.device(PS):
      x = tf.Variable(1.0, name="x")
      increment = tf.assign(x, x + 1)
    session.run(x.initializer)
    with container(NAME):
      session.run(increment)
    return float(session.run(x))


def illegal_name(target):
  """TensorFlow accepts the name, and fails when the variable is run."""
  with tf.Graph().as_default(), tf.device(PS), \
      tf.container("my_problem_1"):  # tf1ps-doctor: ignore[container-name]
    x = tf.Variable(1.0, name="x")
    with tf.Session(target) as session:
      session.run(x.initializer)


def refused(function, *arguments):
  """Makes a call that must fail; returns its error."""
  try:
    function(*arguments)
  except (tf.errors.OpError, ValueError, ContainerError) as error:
    return error
  raise AssertionError("not refused")


def main(_):
  """Starts a ps and a worker, and goes through the list above."""
  ps, worker = flags.FLAGS.hosts or find_free_addresses(2)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": [worker]}
  servers = [tf.train.Server(cluster, job, 0) for job in ("ps", "worker")]
  target = servers[1].target

  x, inner = two_in_two_containers()
  session = tf.Session(target)
  session.run([x.initializer, inner.initializer])
  print("two containers:", values(session, x, inner))
  tf.Session.reset(target, [NAME])  # tf1ps-doctor: ignore[reset-breaks-sessions]
  with tf.Session(target) as new:
    print("a new session after Session.reset:", values(new, x, inner))

    print("1. tf.container around session.run: counts in the shared x,",
          round_session_run(target, tf.container))
    print("1. tf1ps' around session.run:",
          type(refused(round_session_run, target, container_scope)).__name__)
    print("2. tf.container('my_problem_1'):", type(refused(illegal_name, target)).__name__)
    print("2. tf1ps' 'my_problem_1': ValueError,", refused(check_container_name, "my_problem_1"))
    print("3. the session after Session.reset:", type(refused(session.run, x)).__name__)
    new.run([x.initializer, inner.initializer])
    reset_containers(from_cluster_spec(cluster, "ps", 0), [NAME])
    print("3. the same session after tf1ps' reset:", values(new, x, inner))


if __name__ == "__main__":
  app.run(main)
