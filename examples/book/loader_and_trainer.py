"""Two clients, one queue: one loads while the other one trains.

Examples B16, B17. Section: queues.
Mechanism: a queue with a shared name on a ps, used through two masters.
This process holds the servers and starts two clients. The loader is connected to worker 0 and puts
three examples into queues. The trainer is connected to worker 1 and takes them out.
`dequeue_many(2)` waits until there are two, so the clients may come in any order.
Three things identify a queue: its task, its container and its shared name.
- The book does not pin the queue. On TensorFlow 2.x the queue is then on the task that the session
  is connected to. Under a device setter it is on the worker, on both versions. So each client has a
  queue of its own, and the trainer's stays empty ("under the device setter" below). Pin it to a ps.
- The same shared name in two containers names two queues.

tf1ps' FIFOQueue has the same arguments, and also `device` and `container`. The time limit of its
`get` costs no example. In a process with a tf1ps.Server, a queue with a shared name is on a ps
without a pin, also under a device setter. These clients have no server, so they name the device.
Toolkit: bare TensorFlow, and tf1ps (docs/queues.md).

    $ python examples/book/loader_and_trainer.py
    pinned to the ps: [[1.0, 2.0], [3.0, 4.0]]
    pinned to the ps: [5.0, 6.0]
    under the device setter: 0 examples
    shared name "twice": 3 examples in container a, 0 in container b
    tf1ps' queue: [[1.0, 2.0], [3.0, 4.0]]
    tf1ps' queue: [5.0, 6.0]
"""

import argparse
import subprocess
import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses

EXAMPLES = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
QUEUE = {"capacity": 10, "dtypes": [tf.float32], "shapes": [[2]]}


def make_queues(cluster, worker):
  """Makes the queues, in the same way in both clients."""
  with tf.device("/job:ps/task:0"):
    pinned = tf.queue.FIFOQueue(shared_name="examples", **QUEUE)
    with tf.container("a"):
      in_a = tf.queue.FIFOQueue(shared_name="twice", **QUEUE)
    with tf.container("b"):
      in_b = tf.queue.FIFOQueue(shared_name="twice", **QUEUE)
  with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
    strayed = tf.queue.FIFOQueue(shared_name="strayed", **QUEUE)
    ours = tf1ps.FIFOQueue(shared_name="ours", device="/job:ps/task:0", **QUEUE)
  return pinned, in_a, in_b, strayed, ours


def load(session, pinned, in_a, in_b, strayed, ours):
  """Puts the examples into all queues, and last into the one at which the trainer waits."""
  ours.put(session, EXAMPLES, many=True, timeout=60)
  session.run([queue.enqueue_many([EXAMPLES]) for queue in (in_a, strayed)])
  example = tf.placeholder(tf.float32, [2])
  enqueue = pinned.enqueue([example])
  for values in EXAMPLES:
    session.run(enqueue, {example: values})


def train(session, pinned, in_a, in_b, strayed, ours):
  """Takes two examples, then one."""
  print("pinned to the ps:", session.run(pinned.dequeue_many(2)).tolist())
  print("pinned to the ps:", session.run(pinned.dequeue()).tolist())
  print("under the device setter: %d examples" % session.run(strayed.size()))
  print("shared name \"twice\": %d examples in container a, %d in container b" % (
    session.run(in_a.size()), session.run(in_b.size())))
  for count in (2, None):
    print("tf1ps' queue:", ours.get(session, count, timeout=60).tolist())


def main():
  """Starts the servers and the two clients; or is one of them."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--hosts", default=",".join(find_free_addresses(3)),
                      help="of the ps and two workers")
  parser.add_argument("--client", type=int, help="0: the loader, 1: the trainer")
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  ps, *workers = flags.hosts.split(",")
  cluster = {"ps": [ps], "worker": workers}
  if flags.client is None:
    _servers = [tf.train.Server(cluster, job, index)  # live as long as this process
                for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]]
    command = [sys.executable, sys.argv[0], "--hosts=" + flags.hosts]
    clients = [subprocess.Popen(command + ["--client=%d" % index]) for index in range(2)]
    sys.exit(any([client.wait() for client in clients]))
  queues = make_queues(cluster, "/job:worker/task:%d" % flags.client)
  config = tf.ConfigProto(operation_timeout_in_ms=60000)
  with tf.Session("grpc://" + workers[flags.client], config=config) as session:
    (load, train)[flags.client](session, *queues)


if __name__ == "__main__":
  main()
