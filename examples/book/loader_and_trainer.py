"""Two clients, one queue: one loads while the other one trains.

Examples B16, B17. Section: queues.
Mechanism: a queue with a shared name on a ps, used through two masters.
This process holds the servers and starts two clients. The loader is connected to worker 0 and puts
three examples into queues. The trainer is connected to worker 1 and takes them out.
`dequeue_many(2)` waits until there are two, so the clients may come in any order. `load` and
`train` are the whole mechanism. `load_others` and `train_others` go through what may go wrong.
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

import subprocess
import sys

import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")
flags.DEFINE_integer("client", None, "0: the loader, 1: the trainer.")

EXAMPLES = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
QUEUE = {"capacity": 10, "dtypes": [tf.float32], "shapes": [[2]]}


def make_queue():
  """Makes the queue on the ps, in the same way in both clients."""
  with tf.device("/job:ps/task:0"):
    return tf.queue.FIFOQueue(shared_name="examples", **QUEUE)


def load(session, queue):
  """The first client: puts in one example at a time."""
  example = tf.placeholder(tf.float32, [2])
  enqueue = queue.enqueue([example])
  for values in EXAMPLES:
    session.run(enqueue, {example: values})


def train(session, queue):
  """The second client: takes two examples, then one."""
  print("pinned to the ps:", session.run(queue.dequeue_many(2)).tolist())
  print("pinned to the ps:", session.run(queue.dequeue()).tolist())


def make_others(cluster, worker):
  """Makes four more: one name in two containers, under the device setter, and tf1ps' queue."""
  with tf.device("/job:ps/task:0"):
    with tf.container("a"):
      in_a = tf.queue.FIFOQueue(shared_name="twice", **QUEUE)
    with tf.container("b"):
      in_b = tf.queue.FIFOQueue(shared_name="twice", **QUEUE)
  with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=worker)):
    strayed = tf.queue.FIFOQueue(shared_name="strayed", **QUEUE)
    ours = tf1ps.FIFOQueue(shared_name="ours", device="/job:ps/task:0", **QUEUE)
  return in_a, in_b, strayed, ours


def load_others(session, in_a, in_b, strayed, ours):
  """Puts the examples into all of them but `in_b`."""
  session.run([queue.enqueue_many([EXAMPLES]) for queue in (in_a, strayed)])
  ours.put(session, EXAMPLES, many=True, timeout=60)  # last: the trainer waits for these


def train_others(session, in_a, in_b, strayed, ours):
  """Takes the examples out of tf1ps' queue, then looks for those in the others."""
  taken = [ours.get(session, count, timeout=60).tolist() for count in (2, None)]
  print("under the device setter: %d examples" % session.run(strayed.size()))
  print("shared name \"twice\": %d examples in container a, %d in container b" % (
    session.run(in_a.size()), session.run(in_b.size())))
  for examples in taken:
    print("tf1ps' queue:", examples)


def main(_):
  """Starts the servers and the two clients; or is one of them."""
  tf.disable_v2_behavior()
  ps, *workers = flags.FLAGS.hosts or find_free_addresses(3)
  cluster = {"ps": [ps], "worker": workers}
  if flags.FLAGS.client is None:
    _servers = [tf.train.Server(cluster, job, index)  # live as long as this process
                for job, index in [("ps", 0), ("worker", 0), ("worker", 1)]]
    command = [sys.executable, sys.argv[0], "--hosts=" + ",".join([ps] + workers)]
    clients = [subprocess.Popen(command + ["--client=%d" % index]) for index in range(2)]
    try:
      sys.exit(any([client.wait(timeout=100) for client in clients]))
    finally:
      for client in clients:
        client.kill()  # it does nothing to one that has ended
  index = flags.FLAGS.client
  queue, others = make_queue(), make_others(cluster, "/job:worker/task:%d" % index)
  config = tf.ConfigProto(operation_timeout_in_ms=60000)  # of each run, and of the close
  with tf.Session("grpc://" + workers[index], config=config) as session:
    (load, train)[index](session, queue)
    (load_others, train_others)[index](session, *others)


if __name__ == "__main__":
  app.run(main)
