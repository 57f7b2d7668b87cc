"""Between-graph replication, synchronous: one update from exactly one gradient of each worker.

Example B40. Section: parallel.
Mechanism: SyncReplicasOptimizer. The targets are those of in_graph_synchronous.py, one per worker.
So w takes the same values, and both workers see every one of them.
synchronous_stock.py shows what TensorFlow's own optimizer does instead, and why.
Toolkit: tf1ps.SyncReplicasOptimizer, with the arguments and the hook of TensorFlow's. It needs no
tokens in advance and no queue runner, and no worker must stay for the others
(docs/replication.md#synchronous-updates).

    $ python examples/book/synchronous_replicas.py
    (1,1.0)(2,1.5)(3,1.75)(4,1.875)(5,1.9375)
    (1,1.0)(2,1.5)(3,1.75)(4,1.875)(5,1.9375)

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/book/synchronous_replicas.py worker 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    2$ python examples/book/synchronous_replicas.py worker 1 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    3$ python examples/book/synchronous_replicas.py ps 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
"""

import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together

TARGETS = [1.0, 3.0]


def main():
  """Serves as the ps, or trains as a worker."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(3)
    return run_together(main, ["worker", "0"] + hosts, ["worker", "1"] + hosts,
                        ["ps", "0"] + hosts)
  job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
  tf.disable_v2_behavior()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  server = tf1ps.Server(cluster, job, index)
  if job == "ps":
    server.join()
    return
  worker = "/job:worker/task:%d" % index
  with tf.device(tf1ps.replica_device_setter(cluster=cluster, worker_device=worker)):
    global_step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.square(w - TARGETS[index]) / 2.0
    optimizer = tf1ps.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.5), 2)
    train_op = optimizer.minimize(loss, global_step)
  hook = optimizer.make_session_run_hook(is_chief=index == 0)
  seen = []
  with tf1ps.MonitoredTrainingSession(server.target, index == 0, hooks=[hook]) as session:
    for _ in range(5):
      session.run(train_op)
      # Nobody updates w before this worker has given its next gradient.
      seen.append("(%d,%s)" % tuple(session.run([global_step, w])))
  print("".join(seen))


if __name__ == "__main__":
  main()
