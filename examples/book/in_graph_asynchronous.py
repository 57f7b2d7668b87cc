"""In-graph replication, asynchronous: one graph, and for each replica an optimizer and a thread.

Example B38. Section: parallel.
Mechanism: one client whose threads run training steps independently.
Both replicas pull the same w towards 2, with rate 0.5, in 100 steps each. No thread waits for
another, so the order of the updates is open. Their number, 200, and the final w are not.
Toolkit: tf1ps (docs/in_graph.md). By hand, three things go wrong without an error:

1. Two updates of one variable at the same moment may overwrite each other. The optimizers here have
   use_locking=True.
2. Two increments of the global step may do the same. build_in_graph_asynchronous makes them under a
   lock.
3. A thread that fails only writes to standard error. ReplicaThreads stops all threads and raises
   the first error.

    $ python examples/book/in_graph_asynchronous.py
    /job:worker/task:0 made 100 steps
    /job:worker/task:1 made 100 steps
    global step 200, w 2.000
"""

import argparse

import tensorflow.compat.v1 as tf

from tf1ps.launch import find_free_addresses
from tf1ps.replication import ReplicaThreads, build_in_graph_asynchronous

WORKERS = ["/job:worker/task:0", "/job:worker/task:1"]


def tower_loss(index):
  """The same loss in each replica, (w - 2)² / 2."""
  del index
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  return tf.square(w - 2.0) / 2.0


def main():
  """Starts the three servers here, to need one shell only, and trains with two threads."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--hosts", default=",".join(find_free_addresses(3)),
                      help="of the ps and two workers")
  ps, *workers = parser.parse_args().hosts.split(",")
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": workers}
  config = tf.ConfigProto(inter_op_parallelism_threads=4)  # three servers share this process
  servers = [tf.train.Server(cluster, job, index, config=config)
             for job, index in [("worker", 0), ("worker", 1), ("ps", 0)]]
  replicas = build_in_graph_asynchronous(
    tower_loss, WORKERS, lambda: tf.train.GradientDescentOptimizer(0.5, use_locking=True),
    variables_device="/job:ps/task:0")
  w, = tf.trainable_variables()
  with tf.Session(servers[0].target) as session:
    session.run(tf.global_variables_initializer())
    steps = {replica.tower.device: lambda op=replica.train_op: session.run(op)
             for replica in replicas}
    with ReplicaThreads(steps, num_steps=100) as threads:
      threads.wait(timeout=60.0)
    for device in WORKERS:
      print("%s made %d steps" % (device, threads.steps[device]))
    print("global step %d, w %.3f" % tuple(session.run([tf.train.get_global_step(), w])))


if __name__ == "__main__":
  main()
