"""Between-graph replication, asynchronous: each worker is a client with a graph of its own.

Example B39. Section: parallel.
Mechanism: the same names on the same ps make the same variable, whichever client built the graph.
Neither worker's graph mentions the other worker. w starts at 0, and each update moves it half of
the way to 2. The workers train twice:

1. They take turns, so that the numbers are exact. Worker 0 makes five updates. Then worker 1 makes
   five, and begins with the value that worker 0 has left.
2. They train at the same time, 100 updates each. A step pauses for 10 ms in place of a computation.
   Each worker counts the updates that the other worker makes between its own first and last one.

Toolkit: tf1ps. With TensorFlow's own Server and MonitoredTrainingSession the program is the same.
But there worker 1 sleeps for 30 s if it finds w uninitialised, and the ps never ends
(docs/drop_in.md). The workers meet at a barrier before they train together
(docs/queues.md#a-barrier).

    $ python examples/book/between_graph_asynchronous.py
    in turns: global step 5, w 1.9375
    at the same time: 100 updates here, and meanwhile ... by the other worker, w 2.0
    in turns: global step 10, w 1.998046875
    at the same time: 100 updates here, and meanwhile ... by the other worker, w 2.0

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/book/between_graph_asynchronous.py worker 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    in turns: global step 5, w 1.9375
    at the same time: 100 updates here, and meanwhile ... by the other worker, w 2.0
    2$ python examples/book/between_graph_asynchronous.py worker 1 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    in turns: global step 10, w 1.998046875
    at the same time: 100 updates here, and meanwhile ... by the other worker, w 2.0
    3$ python examples/book/between_graph_asynchronous.py ps 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223

Most of the other worker's 100 updates fall between: 97 and 99 in one run on two cores.
"""

import sys
import time

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import Barrier

STEPS_IN_TURN, STEPS_TOGETHER, PAUSE = 5, 100, 0.01


def wait_for_step(session, global_step, value, limit=60.0):
  """Reads the global step until it is `value`."""
  end = time.time() + limit
  while session.run(global_step) < value:
    if time.time() > end:
      sys.exit("global step %d was not reached within %g s" % (value, limit))
    time.sleep(0.05)


def train_in_turn(session, train_op, global_step, w, index):
  """Waits for the updates of the workers before this one, and makes its own."""
  wait_for_step(session, global_step, index * STEPS_IN_TURN)
  for _ in range(STEPS_IN_TURN):
    session.run(train_op)
  step, value = session.run([global_step, w])
  print("in turns: global step %d, w %s" % (step, float(value)), flush=True)


def train_together(session, train_op, global_step, w, pause):
  """Makes its updates while the other worker makes its own."""
  before = session.run(global_step)
  for _ in range(STEPS_TOGETHER):
    session.run(train_op, {pause: PAUSE})
  after, value = session.run([global_step, w])
  others = after - before - STEPS_TOGETHER
  if not others:
    sys.exit("the other worker made no update meanwhile")
  print("at the same time: %d updates here, and meanwhile %d by the other worker, w %s" % (
    STEPS_TOGETHER, others, float(value)))


def main():
  """Serves as the ps, or trains as a worker."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(3)
    return run_together(main, ["worker", "0"] + hosts, ["worker", "1"] + hosts,
                        ["ps", "0"] + hosts)
  job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
  tf.disable_v2_behavior()
  tf.enable_resource_variables()  # no two updates of the global step become one
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  server = tf1ps.Server(cluster, job, index)
  if job == "ps":
    server.join()  # ends when the chief has ended
    return
  worker = "/job:worker/task:%d" % index
  with tf.device(tf1ps.replica_device_setter(cluster=cluster, worker_device=worker)):
    global_step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    pause = tf.placeholder_with_default(np.float32(0), [])
    waited = tf.numpy_function(lambda seconds: time.sleep(float(seconds)), [pause], [])
    with tf.control_dependencies([waited]):
      loss = tf.square(w - 2.0) / 2.0
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step)
  barrier = Barrier("together", num_tasks=2, task_index=index)
  with tf1ps.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
    train_in_turn(session, train_op, global_step, w, index)
    barrier.wait(session, timeout=60.0)
    train_together(session, train_op, global_step, w, pause)


if __name__ == "__main__":
  main()
