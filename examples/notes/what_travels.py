"""Send and Recv between tasks: the partitions of a graph, and the values that cross them.

Example N3.
Mechanism: the master cuts the graph at the borders of devices. It puts a Send on one side of each
cut edge and a Recv on the other side. `output_partition_graphs` of RunOptions shows the partitions
of a run. Here two weights are on the ps, and two layers on the worker.
What to look for: a Send and its Recv have the same tensor name. Forward, the ps sends the weights.
Back, the worker sends a gradient for each weight. The update itself runs on the ps, so nothing
travels twice. A fed value reaches the worker by a Recv that has no Send.
Toolkit: bare TensorFlow. (tf1ps counts the bytes of a step: docs/monitoring.md#what-a-step-sends.)

    $ python examples/notes/what_travels.py
    forward:
      w1/read: Send on /job:ps/task:0, Recv on /job:worker/task:0
      w2/read: Send on /job:ps/task:0, Recv on /job:worker/task:0
    back:
      gradients/hidden_grad/MatMul_1: Send on /job:worker/task:0, Recv on /job:ps/task:0
      gradients/y_grad/MatMul_1: Send on /job:worker/task:0, Recv on /job:ps/task:0
    updates on the ps: ['w1', 'w2']
"""

import re

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and the worker; none: free ones.")


def partitions_of_a_step(target, train_op, feed):
  """Runs a step; returns the graph of each device."""
  found = tf.RunMetadata()
  with tf.Session(target) as session:
    session.run(tf.global_variables_initializer())
    session.run(train_op, feed, run_metadata=found,
                options=tf.RunOptions(output_partition_graphs=True))
  return found.partition_graphs


def task_of(name):
  """/job:ps/task:0 of a whole device name."""
  return name.split("/device:")[0].replace("/replica:0", "")


def pairs(graphs):
  """Returns {tensor: {"_Send": task, "_Recv": task}} of what crosses from task to task."""
  found = {}
  for graph in graphs:
    for node in graph.node:
      if node.op in ("_Send", "_Recv") and not node.attr["client_terminated"].b:
        # The name is edge_<number>_<tensor>; the number is the partitioner's own.
        tensor = re.sub(r"^edge_\d+_", "", node.attr["tensor_name"].s.decode())
        found.setdefault(tensor, {})[node.op] = task_of(node.device)
  return found


def main(_):
  """Starts both servers here, to need one shell only, and prints what a step sends."""
  ps, worker = flags.FLAGS.hosts or find_free_addresses(2)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": [worker]}
  servers = [tf.train.Server(cluster, job, 0) for job in ("worker", "ps")]
  with tf.device("/job:ps/task:0"):
    w1 = tf.get_variable("w1", [4, 3])
    w2 = tf.get_variable("w2", [3, 1])
  with tf.device("/job:worker/task:0"):
    x = tf.placeholder(tf.float32, [2, 4], name="x")
    hidden = tf.matmul(x, w1, name="hidden")
    y = tf.matmul(hidden, w2, name="y")
    loss = tf.reduce_sum(tf.square(y), name="loss")
    # In the worker's scope, or the gradients would be computed wherever TensorFlow likes.
    gradients = tf.gradients(loss, [w1, w2])
  # Outside of it: updates follow their variables, and so should the learning rate.
  with tf.device("/job:ps/task:0"):
    train_op = tf.train.GradientDescentOptimizer(0.1).apply_gradients(zip(gradients, [w1, w2]))

  graphs = partitions_of_a_step(servers[0].target, train_op, {x: [[1, 2, 3, 4], [5, 6, 7, 8]]})
  for title, sender in [("forward", "/job:ps/task:0"), ("back", "/job:worker/task:0")]:
    print(title + ":")
    for tensor, ends in sorted(pairs(graphs).items()):
      if ends["_Send"] == sender:
        print("  %s: Send on %s, Recv on %s" % (tensor, ends["_Send"], ends["_Recv"]))
  updates = [node.input[0] for graph in graphs for node in graph.node
             if node.op == "ApplyGradientDescent" and task_of(node.device) == "/job:ps/task:0"]
  print("updates on the ps:", sorted(updates))


if __name__ == "__main__":
  app.run(main)
