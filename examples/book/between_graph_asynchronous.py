"""Between-graph replication, asynchronous: each worker is a client with a graph of its own.

Example B39. Section: parallel.
Mechanism: the same names on the same ps make the same variable, whoever built the graph.
Nothing in either worker's graph says that there is another one. w starts at 0 and goes half of the
way to 2 with each update; worker 0 makes five, then worker 1 makes five, and goes on where worker 0
has left w. (They take turns here so that the numbers can be told beforehand.)
Toolkit: tf1ps. With TensorFlow's own Server and MonitoredTrainingSession the program is the same,
but worker 1 sleeps 30 s if it finds w uninitialised, and the ps never ends (docs/drop_in.md).

    1$ python examples/book/between_graph_asynchronous.py ps 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    2$ python examples/book/between_graph_asynchronous.py worker 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    global step 5, w 1.9375
    3$ python examples/book/between_graph_asynchronous.py worker 1 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    global step 10, w 1.998046875
"""

import sys
import time

import tensorflow.compat.v1 as tf

import tf1ps

STEPS = 5


def wait_for_step(session, global_step, value, limit=60.0):
  """Asks for the global step until it is `value`."""
  end = time.time() + limit
  while session.run(global_step) < value:
    if time.time() > end:
      sys.exit("global step %d was not reached within %g s" % (value, limit))
    time.sleep(0.05)


def main():
  """Serves as the ps, or trains as a worker."""
  job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
  tf.disable_v2_behavior()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  server = tf1ps.Server(cluster, job, index)
  if job == "ps":
    server.join()  # ends when the chief has ended
    return
  worker = "/job:worker/task:%d" % index
  with tf.device(tf1ps.replica_device_setter(cluster=cluster, worker_device=worker)):
    global_step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.square(w - 2.0) / 2.0
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step)
  with tf1ps.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
    wait_for_step(session, global_step, index * STEPS)
    for _ in range(STEPS):
      session.run(train_op)
    step, value = session.run([global_step, w])
    print("global step %d, w %s" % (step, float(value)))


if __name__ == "__main__":
  main()
