"""TensorFlow's own SyncReplicasOptimizer: accumulators, tokens, a spare replica, and its trap.

Example B40. Section: parallel.
Mechanism: each variable has an accumulator for its gradients. (The book describes a queue, as in
early versions.) A thread of the chief takes the mean when enough gradients have come, makes the
update, and puts tokens into one queue. A step ends when its worker has got a token.

1. By default the queue holds tokens from the start (num_tokens=-1: as many as there are gradients
   in an update), and any worker may take any token. Here worker 1 trains alone before the chief's
   first step. It makes an update "of two replicas" from two gradients of its own: w goes to 1.5.
   The mean of both targets would move it to 1.0.
2. num_tokens=0: the first step waits for both workers. (In later steps a worker may still take two
   tokens in a row. Here both start each step together, which prevents it.)
3. A spare replica: one gradient of two workers makes an update. TensorFlow drops the later gradient
   without a message: its step returns as usual, and w does not change. The next one counts again.
4. The accumulator by itself: take_grad(2) is the mean of all gradients that are there, not of two.
   A queue gives exactly the two oldest. A gradient of an earlier step is dropped without a message.

Toolkit: bare TensorFlow. synchronous_replicas.py has the form of tf1ps.

    $ python examples/book/synchronous_stock.py
    num_tokens=-1, worker 1 alone: (1,1.5)
    num_tokens=0, worker 0: (1,1.0)(2,1.5)(3,1.75)(4,1.875)(5,1.9375)
    num_tokens=0, worker 1: (1,1.0)(2,1.5)(3,1.75)(4,1.875)(5,1.9375)
    a spare, worker 0: (1,0.5)
    a spare, worker 1: (1,0.5)(2,1.75)
    the gradients 1, 2, 3, 6: take_grad(2) is 3.0, the mean of two from a queue 1.5
    a gradient of step 0 in step 1: 0 accumulated
"""

import multiprocessing.pool
import time

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")

TARGETS = [1.0, 3.0]


class Worker(object):
  """A replica: a graph and a session of its own, as another process would have."""

  def __init__(self, server, cluster, index, container, to_aggregate, num_tokens):
    """Builds the graph, initialises, and starts the chief's thread."""
    setter = tf.train.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % index)
    # A container for each part of this lesson: the token queue's name is always "sync_token_q".
    with tf.Graph().as_default(), tf.container(container), tf.device(setter):
      self._global_step = tf.train.get_or_create_global_step()
      self._w = tf.get_variable("w", [], initializer=tf.zeros_initializer(), use_resource=True)
      optimizer = tf.train.SyncReplicasOptimizer(  # tf1ps-doctor: ignore[sync-ends-with-chief]
        tf.train.GradientDescentOptimizer(0.5), to_aggregate, total_num_replicas=2)
      self._train_op = optimizer.minimize(tf.square(self._w - TARGETS[index]) / 2.0,
                                          self._global_step)
      self._session = tf.Session(server.target)
      if index == 0:
        tokens = optimizer.get_init_tokens_op(  # tf1ps-doctor: ignore[sync-tokens-are-shared]
          num_tokens)
        self._session.run(tf.global_variables_initializer())
        self._session.run([optimizer.chief_init_op, tokens])
        optimizer.get_chief_queue_runner().create_threads(
          self._session, daemon=True, start=True)
      else:
        self._session.run(optimizer.local_step_init_op)

  def see(self):
    """Returns the global step and w, as text."""
    return "(%d,%s)" % tuple(self._session.run([self._global_step, self._w]))

  def step(self):
    """Makes a step and returns what it sees afterwards."""
    self._session.run(self._train_op)
    return self.see()

  def wait_for_step(self, value, limit=60.0):
    """Waits until the chief's thread has made the update, and returns what it sees."""
    end = time.time() + limit
    while self._session.run(self._global_step) < value:
      if time.time() > end:
        raise RuntimeError("the global step did not come to %d within %g s" % (value, limit))
      time.sleep(0.02)
    return self.see()


def take_two_of_four():
  """Puts four gradients into an accumulator and into a queue, and takes two of each."""
  with tf.Graph().as_default(), tf.Session() as session:
    gradient = tf.placeholder(tf.float32, [])
    accumulator = tf.ConditionalAccumulator(tf.float32, [])
    queue = tf.FIFOQueue(4, tf.float32, [[]])
    apply = accumulator.apply_grad(gradient)  # tf1ps-doctor: ignore[accumulator-drops-gradients]
    enqueue = queue.enqueue(gradient)
    for value in (1.0, 2.0, 3.0, 6.0):
      session.run([apply, enqueue], {gradient: value})
    mean = accumulator.take_grad(2)  # tf1ps-doctor: ignore[take-grad-averages-all]
    print("the gradients 1, 2, 3, 6: take_grad(2) is %s, the mean of two from a queue %s" % tuple(
      session.run([mean, tf.reduce_mean(queue.dequeue_many(2))])))
    session.run(apply, {gradient: 9.0})  # the take has begun step 1, and this is of step 0
    print("a gradient of step 0 in step 1: %d accumulated" % session.run(
      accumulator.num_accumulated()))


def main(_):
  """Starts the servers here, to need one shell only, and shows the four cases."""
  ps, *workers = flags.FLAGS.hosts or find_free_addresses(3)
  tf.disable_v2_behavior()
  cluster = {"ps": [ps], "worker": workers}
  config = tf.ConfigProto(inter_op_parallelism_threads=8)  # many wait in this one process
  servers = [tf.train.Server(cluster, job, index, config=config)
             for job, index in [("worker", 0), ("worker", 1), ("ps", 0)]]

  def replicas(container, to_aggregate, num_tokens):
    return [Worker(servers[index], cluster, index, container, to_aggregate, num_tokens)
            for index in range(2)]

  _, other = replicas("free", to_aggregate=2, num_tokens=-1)
  other.step()
  other.step()
  print("num_tokens=-1, worker 1 alone:", other.wait_for_step(1))

  both = replicas("strict", to_aggregate=2, num_tokens=0)
  with multiprocessing.pool.ThreadPool(2) as threads:
    seen = [threads.map(Worker.step, both) for _ in range(5)]
  for index in range(2):
    print("num_tokens=0, worker %d:" % index, "".join(pair[index] for pair in seen))

  chief, other = replicas("spare", to_aggregate=1, num_tokens=0)
  print("a spare, worker 0:", chief.step())
  print("a spare, worker 1:", other.step() + other.step())
  take_two_of_four()


if __name__ == "__main__":
  app.run(main)
