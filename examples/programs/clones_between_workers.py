"""Two workers with two clones each: synchronous inside a worker, asynchronous between the workers.

Example E7.
Mechanism: each worker has one graph with a clone on each of its devices. It takes the mean of its
clones' gradients and sends this one gradient to the ps, which applies it at once. So clones wait
for each other, which costs no network, and workers wait for nobody.
Each clone pulls w to a target of its own: its loss is (w - target)² / 2. The rate is 1/8.
What to look for, in turns: both workers read w = 0. Worker 0 sends its gradient first, which is
fresh: no update lies between its reading and its own update, so its age is 0. The gradient of
worker 1 was computed at w = 0, too, and meets w = 0.25: its age is 1. The age counts the updates of
other workers, never those of clones.
What to look for, at the same time: every step of a worker is one update from both of its clones.
With a worker for each clone there would be twice as many messages and updates, and a gradient could
meet those of three others.
Toolkit: bare TensorFlow; tf1ps.replication measures the ages and finds what travels
(docs/replication.md#staleness). clones_and_replicas.py has tf1ps' clones, and synchronous workers.

    $ python examples/programs/clones_between_workers.py
    worker 0: clones on CPU:0 and CPU:1, their gradients -1.0 and -3.0, to the ps: -2.0
    worker 1: clones on CPU:0 and CPU:1, their gradients -2.0 and -6.0, to the ps: -4.0
    a step sends to the ps: gradient:0
    in turns, worker 0: age 0, w is 0.25 now
    in turns, worker 1: age 1, w is 0.75 now
    at the same time, worker 0: 100 updates, ages 0 to ..., ... on average
    at the same time, worker 1: 100 updates, ages 0 to ..., ... on average
    global step 202, w between 2 and 4: True
"""

import multiprocessing.pool

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses
from tf1ps.replication import age_at_push, begin_gradient_age, crossings

flags.DEFINE_list("hosts", None, "Of the ps and two workers; none: free ones.")

TARGETS = [[1.0, 3.0], [2.0, 6.0]]  # of the clones of each worker
STEPS = 100


class Worker:
  """A client with a graph and a session of its own."""

  def __init__(self, server, index):
    """Builds the graph; worker 0 initialises."""
    task = "/job:worker/task:%d" % index
    setter = tf.train.replica_device_setter(ps_tasks=1, worker_device=task)
    with tf.Graph().as_default() as graph, tf.device(setter):
      step = tf.train.get_or_create_global_step()
      self.w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
      self.begun = begin_gradient_age(step)
      optimizer = tf.train.GradientDescentOptimizer(1 / 8)
      self.of_clones = []
      for clone, target in enumerate(TARGETS[index]):
        with tf.device("/device:CPU:%d" % clone), tf.name_scope("clone_%d" % clone):
          loss = tf.square(self.w - target) / 2.0
          (gradient, _), = optimizer.compute_gradients(loss, [self.w])
          self.of_clones.append(gradient)
      self.gradient = tf.reduce_mean(tf.stack(self.of_clones), axis=0, name="gradient")
      self.age = age_at_push(step, self.begun, [self.gradient])
      with tf.control_dependencies([self.age]):  # or the update itself might count
        self.train_op = optimizer.apply_gradients([(self.gradient, self.w)], step)
      self.step = step
      self.session = tf.Session(server.target, graph)
      if index == 0:
        self.session.run(tf.global_variables_initializer())

  def compute(self):
    """Reads w and computes; returns a feed that lets `push` send this gradient later."""
    tensors = [self.begun, self.gradient]
    return dict(zip(tensors, self.session.run(tensors)))

  def push(self, computed=None):
    """Makes a step, or the rest of one; returns the age of its gradient."""
    return int(self.session.run([self.age, self.train_op], computed)[0])

  def sent(self):
    """The tensors that a step sends from the worker to the ps, without constants."""
    found = crossings([self.train_op])
    return [one.tensor for one in found
            if "/job:worker" in one.source and "/job:ps" in one.destination
            and self.session.graph.get_tensor_by_name(one.tensor).op.type != "Const"]


def main(_):
  """Starts the servers here, to need one shell only; trains in turns, then at the same time."""
  ps, *hosts = flags.FLAGS.hosts or find_free_addresses(3)
  tf.disable_v2_behavior()
  tf.enable_resource_variables()  # two updates at the same moment both count
  config = tf.ConfigProto(device_count={"CPU": 2}, inter_op_parallelism_threads=6)
  servers = [tf.train.Server({"ps": [ps], "worker": hosts}, job, index, config=config)
             for job, index in [("worker", 0), ("worker", 1), ("ps", 0)]]
  workers = [Worker(server, index) for index, server in enumerate(servers[:2])]
  for index, worker in enumerate(workers):
    places = [gradient.device.rpartition("device:")[2] for gradient in worker.of_clones]
    print("worker %d: clones on %s and %s, their gradients %s and %s, to the ps: %s" % (
      (index, *places) + tuple(worker.session.run(worker.of_clones + [worker.gradient]))))
  print("a step sends to the ps:", ", ".join(workers[0].sent()))

  computed = [worker.compute() for worker in workers]
  for index, worker in enumerate(workers):
    print("in turns, worker %d: age %d, w is %s now" % (
      index, worker.push(computed[index]), worker.session.run(worker.w)))

  with multiprocessing.pool.ThreadPool(2) as threads:
    ages = threads.map(lambda worker: [worker.push() for _ in range(STEPS)], workers, chunksize=1)
  for index, own in enumerate(ages):
    print("at the same time, worker %d: %d updates, ages %d to %d, %.1f on average" % (
      index, len(own), min(own), max(own), sum(own) / len(own)))
  step, w = workers[0].session.run([workers[0].step, workers[0].w])
  print("global step %d, w between 2 and 4: %s" % (step, 2 <= w <= 4))


if __name__ == "__main__":
  app.run(main)
