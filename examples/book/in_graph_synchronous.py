"""In-graph replication, synchronous: one client, one graph, a tower on each worker, one update.

Example B37. Section: parallel.
Mechanism: towers pinned to tasks, the mean of their gradients, one optimizer.
Each tower has another target for w: its loss is (w - target)² / 2, with targets 1 and 3, and the
rate is 0.5. The mean of the gradients is w - 2, so every step moves w half of the way to 2.
Why the mean is right: the loss of a batch is L = (L1 + ... + Ln) / n, where Li is the loss of tower
i's part. By the chain rule dL/dw = dL/dL1 dL1/dw + ... + dL/dLn dLn/dw, and each dL/dLi is 1/n. So
the mean of the towers' gradients is the gradient of the whole batch, if the parts are equally
large. Towers differ in their data and so in their gradients. One update for all from the one mean
keeps the weights equal everywhere.
"In-graph" has two meanings. The book means copies of the model, one on each worker, in one graph.
Others mean different *parts* of a model on different machines, which is model parallelism
(model_parallel.py). Both have one client, and the other workers are servers that run their parts.
The example reads the places of the towers from the trace of a step.
Toolkit: bare TensorFlow, and tf1ps.replication.build_in_graph_synchronous. This one also takes the
mean beside each variable, sparse or dense (docs/replication.md#in-graph-by-hand).

    $ python examples/book/in_graph_synchronous.py
    by hand: [1.0, 1.5, 1.75, 1.875]
    tower_0 ran on ['/job:worker/task:0']
    tower_1 ran on ['/job:worker/task:1']
    tf1ps: [1.0, 1.5, 1.75, 1.875]
"""

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses
from tf1ps.replication import build_in_graph_synchronous

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")

TARGETS = [1.0, 3.0]
WORKERS = ["/job:worker/task:0", "/job:worker/task:1"]


def tower_loss(index):
  """The loss of one tower; the first call makes w, the others find it."""
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  return tf.square(w - TARGETS[index]) / 2.0


def build_by_hand(optimizer):
  """Towers, their gradients, the mean, one update."""
  gradients = []
  for index, worker in enumerate(WORKERS):
    # Variables to the ps, everything else to the tower's worker.
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device=worker)
    with tf.device(setter), tf.name_scope("tower_%d" % index):
      with tf.variable_scope("", reuse=index > 0):
        (gradient, w), = optimizer.compute_gradients(tower_loss(index))
        gradients.append(gradient)
  with tf.device("/job:ps/task:0"):
    mean = tf.add_n(gradients) / len(gradients)
    return optimizer.apply_gradients([(mean, w)])


def build_with_tf1ps(optimizer):
  """The same in one call."""
  return build_in_graph_synchronous(
    tower_loss, WORKERS, optimizer, variables_device="/job:ps/task:0").train_op


def where_towers_ran(session, train_op):
  """Returns {tower: tasks on which its operations ran}, from the trace of one more step."""
  trace = tf.RunMetadata()
  session.run(train_op, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
              run_metadata=trace)
  tasks = {"tower_0": set(), "tower_1": set()}
  for device in trace.step_stats.dev_stats:
    task = device.device.replace("/replica:0", "").split("/device:")[0]
    for node in device.node_stats:
      scope = node.node_name.split("/")[0]
      # Operations that read a variable are on the task of the variable.
      if scope in tasks and task.startswith("/job:worker"):
        tasks[scope].add(task)
  return tasks


def train(target, build):
  """Returns w after each of four steps, and where the towers ran."""
  with tf.Graph().as_default():
    train_op = build(tf.train.GradientDescentOptimizer(0.5))
    w, = tf.trainable_variables()
    with tf.Session(target) as session:
      session.run(tf.global_variables_initializer())
      values = []
      for _ in range(4):
        session.run(train_op)
        values.append(float(session.run(w)))
      return values, where_towers_ran(session, train_op)


def main(_):
  """Starts the three servers here, to need one shell only, and trains twice."""
  ps, *workers = flags.FLAGS.hosts or find_free_addresses(3)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": workers}
  servers = [tf.train.Server(cluster, job, index)
             for job, index in [("worker", 0), ("worker", 1), ("ps", 0)]]
  values, tasks = train(servers[0].target, build_by_hand)
  print("by hand:", values)
  for tower, where in sorted(tasks.items()):
    print(tower, "ran on", sorted(where))
  print("tf1ps:", train(servers[0].target, build_with_tf1ps)[0])


if __name__ == "__main__":
  app.run(main)
