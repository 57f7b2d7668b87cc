"""One client fills a queue, two others train on its elements, and all end.

Example E9.
Mechanism: a queue on the ps links programs that start and end by themselves.

1. The filler puts its examples into the queue, waits while the queue is full, and closes it.
2. Each trainer has a thread that takes the next batch out of the queue while the model trains on
   the last one. Each example goes to one trainer. When the queue is closed and empty, the thread
   ends, and with it the training.
3. The first trainer is the chief: it waits for the other one, and releases the ps.

The queue is in a container of its own. The training clears the container of its job when it begins,
and the filler may be there before.
Toolkit: tf1ps.FIFOQueue (docs/queues.md) and tf1ps.pipeline.feed (docs/pipelines.md).

    $ python examples/fill_queue.py
    trainer 0: ... examples, last loss ...
    trainer 1: ... examples, last loss ...
    filled in 2000 examples

That starts all tasks on this machine. By hand, start --role=ps, --role=filler, and --role=trainer
with --index=0 and --index=1, each in a shell of its own and in any order.
"""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.pipeline import feed
from tf1ps.state import QueueEnded

BATCH = 20
LIMIT = 600.0  # seconds to wait for the other programs


def make_queue():
  """The same in all processes."""
  return tf1ps.FIFOQueue(200, [tf.float32, tf.float32], [[2], []], names=["x", "y"],
                         shared_name="examples", container="filled", device="/job:ps/task:0")


def fill(master, count):
  """Puts examples into the queue, and closes it."""
  queue = make_queue()
  close = queue.close()
  # Without filters, the session would wait for the trainers.
  with tf.Session(master, config=tf.ConfigProto(device_filters=["/job:ps"])) as session:
    random = np.random.RandomState(0)
    for first in range(0, count, BATCH):
      x = random.randn(min(BATCH, count - first), 2)
      queue.put(session, {"x": x, "y": x.dot([2.0, -1.0]) + 0.5}, many=True, timeout=LIMIT)
    session.run(close)
  print("filled in %d examples" % count, flush=True)


def taken(master, config):
  """Yields batches from the queue until its end; the last one may be smaller."""
  with tf.Graph().as_default():
    queue = make_queue()
    with tf.Session(master, config=config) as session:
      try:
        while True:
          yield queue.get(session, BATCH, up_to=True, timeout=LIMIT)
      except QueueEnded:
        pass


def train(server, cluster, index):
  """Trains until the queue has ended."""
  device = "/job:worker/task:%d" % index
  config = tf.ConfigProto(device_filters=["/job:ps", device])
  with tf.device(tf1ps.replica_device_setter(cluster=cluster, worker_device=device)):
    batch = feed(lambda: taken(server.target, config), {"x": tf.float32, "y": tf.float32},
                 {"x": [None, 2], "y": [None]})
    w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(batch["x"], w)[:, 0] + b - batch["y"]))
    step = tf.train.get_or_create_global_step()
    update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    size = tf.size(batch["y"])
  examples, last_loss = 0, float("nan")
  with tf1ps.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
    while not session.should_stop():
      count, last_loss, _ = session.run([size, loss, update])
      examples += int(count)
  print("trainer %d: %d examples, last loss %.4f" % (index, examples, last_loss), flush=True)


def main():
  """Plays one role."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--role", choices=["ps", "trainer", "filler"],
                      help="none: all of them")
  parser.add_argument("--index", type=int, default=0, help="of a trainer")
  parser.add_argument("--examples", type=int, default=2000)
  parser.add_argument("--ps", default="127.0.0.1:2251")
  parser.add_argument("--trainers", default="127.0.0.1:2252,127.0.0.1:2253")
  flags = parser.parse_args()
  if not flags.role:
    ps, *trainers = find_free_addresses(3)
    common = ["--ps=" + ps, "--trainers=" + ",".join(trainers)]
    return run_together(main, *[common + role for role in [
      ["--role=trainer", "--index=0"], ["--role=trainer", "--index=1"],
      ["--role=filler", "--examples=%d" % flags.examples], ["--role=ps"]]])
  tf.disable_v2_behavior()
  cluster = {"ps": [flags.ps], "worker": flags.trainers.split(",")}
  if flags.role == "filler":
    fill("grpc://" + flags.ps, flags.examples)
  elif flags.role == "ps":
    tf1ps.Server(cluster, "ps", 0).join()
  else:
    train(tf1ps.Server(cluster, "worker", flags.index), cluster, flags.index)


if __name__ == "__main__":
  main()
