"""Which variables asynchronous replicas share, and a reuse that leaks from its scope.

Example N7.
Mechanism: sharing by name on a ps, reuse by scope in a graph.
1. Nothing is "reused" between graphs: each replica makes its variables anew. Variables of one name
   on one ps *are* one variable, slots included. A variable that is pinned to a worker is that
   worker's own.
2. Within one graph the second replica reuses w. Each optimizer has slots of its own: two momenta.
3. `reuse_variables()` cannot be undone, and holds to the end of the current scope. Called inside a
   scope of your own, it ends there. Called outside, it marks the scope of the whole graph, and the
   next new variable of any part is a ValueError. Use AUTO_REUSE on a scope of your own: it needs no
   call.
Toolkit: bare TensorFlow. (tf1ps' towers reuse within themselves:
docs/replication.md#in-graph-by-hand.)

    $ python examples/notes/reuse_of_variables.py
    1. worker 0 has made a step: w -0.5, w/Momentum 1.0, own 7.0
    1. worker 1 finds: w -0.5, w/Momentum 1.0, own uninitialised
    2. ['w', 'w/Momentum', 'w/Momentum_1']
    3. scoped: ['tower/w', 'other']
    3. leaked: ValueError: Variable other does not exist...
    3. AUTO_REUSE: ['tower/w', 'other']
"""

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")


def build_replica(index, cluster):
  """Builds what a worker builds; returns the train op and its variables by name."""
  setter = tf.train.replica_device_setter(
    cluster=cluster, worker_device="/job:worker/task:%d" % index)
  with tf.device(setter):
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    train_op = tf.train.MomentumOptimizer(0.5, 0.9).minimize(w)  # a gradient of 1
  with tf.device("/job:worker/task:%d" % index):
    tf.get_variable("own", [], initializer=tf.constant_initializer(7.0))
  return train_op, {variable.op.name: variable for variable in tf.global_variables()}


def between_graphs(hosts):
  """Worker 0 initialises and makes a step; worker 1 looks at what there is."""
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  servers = [tf.train.Server(cluster, job, index)
             for job, index in [("worker", 0), ("worker", 1), ("ps", 0)]]
  for index, said in enumerate(["worker 0 has made a step", "worker 1 finds"]):
    with tf.Graph().as_default():
      train_op, variables = build_replica(index, cluster)
      known = {name: tf.is_variable_initialized(variable) for name, variable in variables.items()}
      with tf.Session(servers[index].target) as session:
        if index == 0:
          session.run(tf.global_variables_initializer())
          session.run(train_op)
        found = {name: float(session.run(variables[name])) if is_known else "uninitialised"
                 for name, is_known in session.run(known).items()}
    print("1. %s: %s" % (said, ", ".join(
      "%s %s" % (name, found[name]) for name in ("w", "w/Momentum", "own"))))


def within_a_graph():
  """Two replicas with an optimizer each; returns the names of the variables."""
  for index in range(2):
    with tf.variable_scope("", reuse=index > 0):
      w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    tf.train.MomentumOptimizer(0.5, 0.9).minimize(w)


def scoped():
  """The mark ends with the scope."""
  with tf.variable_scope("tower"):
    tf.get_variable("w", [])
    tf.get_variable_scope().reuse_variables()
    tf.get_variable("w", [])
  tf.get_variable("other", [])


def leaked():
  """The mark is on the scope of the whole graph."""
  tf.get_variable("w", [])
  tf.get_variable_scope().reuse_variables()
  tf.get_variable("w", [])
  tf.get_variable("other", [])


def auto_reuse():
  """No mark: made by whoever comes first."""
  for _ in range(2):
    with tf.variable_scope("tower", reuse=tf.AUTO_REUSE):
      tf.get_variable("w", [])
  tf.get_variable("other", [])


def names_after(build):
  """Returns the names of the variables that building makes, or the error."""
  with tf.Graph().as_default():
    try:
      build()
    except ValueError as error:
      return "ValueError: " + str(error).split(",")[0]
    return [variable.op.name for variable in tf.global_variables()]


def main(_):
  """Starts the servers here, to need one shell only, and shows the three."""
  tf.disable_v2_behavior()
  between_graphs(flags.FLAGS.hosts or find_free_addresses(3))
  print("2.", names_after(within_a_graph))
  print("3. scoped:", names_after(scoped))
  print("3. leaked:", names_after(leaked))
  print("3. AUTO_REUSE:", names_after(auto_reuse))


if __name__ == "__main__":
  app.run(main)
