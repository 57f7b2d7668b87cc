"""In-graph replication, asynchronous: one graph, and for each replica an optimizer and a thread.

Example B38. Section: parallel.
Mechanism: one client whose threads run training steps independently.
Both replicas pull the same w towards 2, with rate 0.5, in 100 steps each. No thread waits for
another, so the order of the updates is open. Their number, 200, and the final w are not.
By hand, each replica is an `optimizer.minimize` under its own device setter, and each thread calls
`session.run` in a loop. That is the whole mechanism. Three things go wrong in it without an error:

1. Two updates of one variable at the same moment may overwrite each other. The optimizers here have
   use_locking=True.
2. Two increments of the global step may do the same, so by hand it may end below 200.
   build_in_graph_asynchronous makes them under a lock.
3. A thread that fails only writes to standard error, and the others go on. ReplicaThreads stops all
   threads and raises the first error.

Toolkit: bare TensorFlow, and then tf1ps (docs/replication.md#in-graph-by-hand).

    $ python examples/book/in_graph_asynchronous.py
    by hand: global step ..., w 2.000
    tf1ps: /job:worker/task:0 made 100 steps
    tf1ps: /job:worker/task:1 made 100 steps
    tf1ps: global step 200, w 2.000
"""

import threading

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses
from tf1ps.replication import ReplicaThreads, build_in_graph_asynchronous

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")

PS, WORKERS = "/job:ps/task:0", ["/job:worker/task:0", "/job:worker/task:1"]
STEPS = 100


def tower_loss(index):
  """The same loss in each replica, (w - 2)² / 2; the first call makes w, the others find it."""
  del index
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  return tf.square(w - 2.0) / 2.0


def new_optimizer():
  """Each replica has an optimizer of its own."""
  return tf.train.GradientDescentOptimizer(0.5, use_locking=True)


def by_hand(target):
  """A train_op for each worker, and a thread for each train_op."""
  with tf.Graph().as_default(), tf.Session(target) as session:
    with tf.device(PS):
      global_step = tf.train.get_or_create_global_step()
    train_ops = []
    for index, worker in enumerate(WORKERS):
      # Variables to the ps, everything else to the replica's worker.
      with tf.device(tf.train.replica_device_setter(ps_tasks=1, worker_device=worker)), \
          tf.variable_scope("", reuse=index > 0):
        train_ops.append(new_optimizer().minimize(tower_loss(index), global_step))

    def make_steps(train_op):
      for _ in range(STEPS):
        session.run(train_op)

    session.run(tf.global_variables_initializer())
    threads = [threading.Thread(target=make_steps, args=[train_op]) for train_op in train_ops]
    for thread in threads:
      thread.start()
    for thread in threads:
      thread.join()
    return session.run([global_step] + tf.trainable_variables())


def with_tf1ps(target):
  """The same by tf1ps, which counts exactly and raises what a thread raises."""
  with tf.Graph().as_default(), tf.Session(target) as session:
    replicas = build_in_graph_asynchronous(
      tower_loss, WORKERS, new_optimizer, variables_device=PS)
    session.run(tf.global_variables_initializer())
    steps = {replica.tower.device: lambda op=replica.train_op: session.run(op)
             for replica in replicas}
    with ReplicaThreads(steps, num_steps=STEPS) as threads:
      threads.wait(timeout=60.0)
    for device in WORKERS:
      print("tf1ps: %s made %d steps" % (device, threads.steps[device]))
    return session.run([tf.train.get_global_step()] + tf.trainable_variables())


def main(_):
  """Starts the three servers here, to need one shell only, and trains twice."""
  ps, *workers = flags.FLAGS.hosts or find_free_addresses(3)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": workers}
  config = tf.ConfigProto(inter_op_parallelism_threads=4)  # three servers share this process
  servers = [tf.train.Server(cluster, job, index, config=config)
             for job, index in [("worker", 0), ("worker", 1), ("ps", 0)]]
  print("by hand: global step %d, w %.3f" % tuple(by_hand(servers[0].target)))
  print("tf1ps: global step %d, w %.3f" % tuple(with_tf1ps(servers[0].target)))


if __name__ == "__main__":
  app.run(main)
