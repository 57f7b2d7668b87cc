"""Two problems on one cluster, kept apart by a variable scope.

Example B14. Section: variables.
Mechanism: a server finds a variable by its name, and a scope makes another name.
Two clients count in a variable x on the same ps. A scope around `session.run` does nothing, because
a variable gets its name when you build it. So both clients count in one x. With the scope around
the construction each client has its own x.
The names in checkpoints differ, too. One container holds both variables, so a reset clears both.
(apart_by_container.py keeps them apart without other names.)
Toolkit: bare TensorFlow.

    $ python examples/book/apart_by_variable_scope.py
    scope around session.run: x counts 1.0, x counts 2.0
    scope around the construction: my_problem_1/x counts 1.0, my_problem_2/x counts 1.0
    once more, without initializers: my_problem_1/x counts 2.0, my_problem_2/x counts 2.0
"""

import contextlib

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and the worker; none: free ones.")


def count(target, scope, around, init):
  """A client: counts once in x, with the scope around the construction or the run."""
  with tf.Graph().as_default(), contextlib.ExitStack() as stack:
    if around == "construction":
      stack.enter_context(tf.variable_scope(scope))
    with tf.device("/job:ps/task:0"):
      x = tf.get_variable("x", initializer=0.0)
      increment = tf.assign(x, x + 1)
    with tf.Session(target) as session:
      if init:
        session.run(x.initializer)
      if around == "run":
        stack.enter_context(tf.variable_scope(scope))
      session.run(increment)
      return "%s counts %s" % (x.op.name, session.run(x))


def main(_):
  """Starts a ps and a worker, and counts in both ways."""
  ps, worker = flags.FLAGS.hosts or find_free_addresses(2)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": [worker]}
  servers = [tf.train.Server(cluster, job, 0) for job in ("ps", "worker")]
  target = servers[1].target
  first, second = "my_problem_1", "my_problem_2"
  for title, around, inits in [("scope around session.run", "run", (True, False)),
                               ("scope around the construction", "construction", (True, True)),
                               ("once more, without initializers", "construction", (False, False))]:
    print("%s: %s, %s" % (title, count(target, first, around, inits[0]),
                          count(target, second, around, inits[1])))


if __name__ == "__main__":
  app.run(main)
