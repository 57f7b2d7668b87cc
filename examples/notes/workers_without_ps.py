"""Workers only, no ps: each has all variables, and gradients are reduced among them.

Example N2.
Mechanism: messages through queues on the workers. Each worker computes its gradient, all workers
take the mean together, and each applies it to its own w. Variables that are equal and get
equal updates stay equal, so only gradients travel.
What to look for: both workers (targets 1 and 3) print the same weights. One process that has both
targets gets these weights, too.
Use Horovod instead for this scheme on many machines with GPUs: it takes a TensorFlow 1 script, and
has MPI or Gloo between machines and NCCL between GPUs. Use NCCL instead when all devices are
NVIDIA's GPUs: it knows their links. Neither has updates that wait for nobody, or embeddings that
are larger than one machine. Those are what a ps is for.
Toolkit: tf1ps.replication.build_mirrored and watch_peers (docs/replication.md#all-reduce-by-hand).
A bare session waits for ever for a worker that died or has built another model. tf1ps names that
worker.

    $ python examples/notes/workers_without_ps.py
    worker 0: [0.0, 1.0, 1.5, 1.75, 1.875]
    as in one process: True
    worker 1: [0.0, 1.0, 1.5, 1.75, 1.875]
    as in one process: True

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/notes/workers_without_ps.py 0 127.0.0.1:2221 127.0.0.1:2222
    2$ python examples/notes/workers_without_ps.py 1 127.0.0.1:2221 127.0.0.1:2222
"""

import sys
import time

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, Task
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.replication import build_mirrored, watch_peers

TARGETS = [1.0, 3.0]
STEPS = 4


def loss_of(targets):
  """The mean over some targets of (w - target)² / 2."""
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  return tf.reduce_mean(tf.square(w - targets)) / 2.0


def in_one_process():
  """Trains on both targets at once; returns w before each step and after the last."""
  with tf.Graph().as_default():
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss_of(TARGETS))
    w, = tf.trainable_variables()
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      found = [float(session.run(w))]
      for _ in range(STEPS):
        session.run(train_op)
        found.append(float(session.run(w)))
      return found


def main():
  """Trains together with the other worker."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(2)
    return run_together(main, ["0"] + hosts, ["1"] + hosts)
  index, hosts = int(sys.argv[1]), sys.argv[2:]
  tf.disable_v2_behavior()
  own = "/job:worker/task:%d" % index
  # The server first: the first session or server of a process fixes its devices and threads.
  server = tf.train.Server({"worker": hosts}, "worker", index)
  model = build_mirrored(
    lambda device: loss_of(TARGETS[index:index + 1]), [own],
    lambda: tf.train.GradientDescentOptimizer(0.5), task_index=index, num_tasks=2)
  w, = tf.trainable_variables()
  other = Task("worker", 1 - index, hosts[1 - index])
  with BoundedSession(server.target) as session:
    with watch_peers(session, [other], timeout=60):
      session.run(model.check_op)  # have both built the same?
      session.run(tf.global_variables_initializer())
      session.run(model.start_op)  # both take worker 0's values
      found = [float(session.run(w))]
      for _ in range(STEPS):
        session.run(model.train_op)
        found.append(float(session.run(w)))
  print("worker %d: %s" % (index, found))
  print("as in one process:", found == in_one_process())
  time.sleep(2.0)  # the other's last step may still be fetching from this process


if __name__ == "__main__":
  main()
