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
Toolkit: tf1ps.FIFOQueue (docs/queues.md).

    $ python examples/fill_queue.py
    trainer 0: ... examples, last loss ...
    trainer 1: ... examples, last loss ...
    filled in 2000 examples

That starts all tasks on this machine. By hand, start --role=ps, --role=filler, and --role=trainer
with --index=0 and --index=1, each in a shell of its own and in any order.
"""

from multiprocessing.pool import ThreadPool

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import QueueEnded

flags.DEFINE_enum("role", None, ["ps", "trainer", "filler"], "None: all of them.")
flags.DEFINE_integer("index", 0, "Of a trainer.")
flags.DEFINE_integer("examples", 2000, "That the filler puts into the queue.")
flags.DEFINE_string("ps", "127.0.0.1:2251", "Its address.")
flags.DEFINE_list("trainers", ["127.0.0.1:2252", "127.0.0.1:2253"], "Their addresses.")
FLAGS = flags.FLAGS

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


def ahead(batches):
  """Yields batches; a thread takes the next one while the caller works on the last."""
  with ThreadPool(1) as thread:
    coming = thread.apply_async(next, [batches, None])
    while True:
      batch = coming.get()  # or the error of the thread
      if batch is None:
        return
      coming = thread.apply_async(next, [batches, None])
      yield batch


def train(server, cluster, index):
  """Trains until the queue has ended."""
  device = "/job:worker/task:%d" % index
  config = tf.ConfigProto(device_filters=["/job:ps", device])
  with tf.device(tf1ps.replica_device_setter(cluster=cluster, worker_device=device)):
    x, y = tf.placeholder(tf.float32, [None, 2]), tf.placeholder(tf.float32, [None])
    w = tf.get_variable("w", [2, 1], initializer=tf.zeros_initializer())
    b = tf.get_variable("b", [], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(x, w)[:, 0] + b - y))
    step = tf.train.get_or_create_global_step()
    update = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
  examples, last_loss = 0, float("nan")
  with tf1ps.MonitoredTrainingSession(server.target, is_chief=index == 0) as session:
    for batch in ahead(taken(server.target, config)):
      last_loss, _ = session.run([loss, update], {x: batch["x"], y: batch["y"]})
      examples += len(batch["y"])
      if session.should_stop():
        break
  print("trainer %d: %d examples, last loss %.4f" % (index, examples, last_loss), flush=True)


def main(_):
  """Plays one role."""
  if not FLAGS.role:
    ps, *trainers = find_free_addresses(3)
    common = ["--ps=" + ps, "--trainers=" + ",".join(trainers)]
    return run_together(lambda: app.run(main), *[common + role for role in [
      ["--role=trainer", "--index=0"], ["--role=trainer", "--index=1"],
      ["--role=filler", "--examples=%d" % FLAGS.examples], ["--role=ps"]]])
  tf.disable_v2_behavior()
  cluster = {"ps": [FLAGS.ps], "worker": FLAGS.trainers}
  if FLAGS.role == "filler":
    fill("grpc://" + FLAGS.ps, FLAGS.examples)
  elif FLAGS.role == "ps":
    tf1ps.Server(cluster, "ps", 0).join()
  else:
    train(tf1ps.Server(cluster, "worker", FLAGS.index), cluster, FLAGS.index)


if __name__ == "__main__":
  app.run(main)
