"""Clones in replicas from one configuration: the device of everything, and a job that uses it.

Example E7.
Mechanism: a replica is a worker, and a clone is a device of it. Three numbers give the four kinds
of devices: variables go to the ps in turn, inputs and optimizer to the worker's CPU, and each clone
to a GPU. TensorFlow's tf.contrib had Slim's deployment library for this. Here a device setter, a
string for each device and tf1ps' clones do it (docs/replication.md#in-graph-by-hand). The
gradients of a worker's clones become one gradient, which travels to the ps.
What to look for: the job trains on two logical CPU devices of each worker. The clones of a worker
always compute one gradient together. The SyncReplicasOptimizer of this job also joins the gradients
of the workers, which makes the result exact. The chief then trains on the batches of both workers
in one process, without clones, and compares. Without that optimizer, each worker updates for
itself. After the job come the devices of the same graphs with clones on GPUs. To print them, the
program only builds the graphs, so it needs no GPU. The two graphs differ in the worker's index
only.
Toolkit: tf1ps.replication.build_clones and tf1ps.replica_device_setter.

    $ python examples/programs/clones_and_replicas.py
    worker 0: 20 steps, clones on CPU:0 and CPU:1
    equal to one process with the whole batch, to 1e-6: True
    worker 1: 20 steps, clones on CPU:0 and CPU:1
    the graph of worker 0:
      variable global_step /job:ps/task:0/device:CPU:0
      variable w /job:ps/task:1/device:CPU:0
      variable b /job:ps/task:0/device:CPU:0
      inputs /job:worker/task:0/device:CPU:0
      clone 0 /job:worker/task:0/device:GPU:0
      clone 1 /job:worker/task:0/device:GPU:1
      optimizer /job:worker/task:0/device:CPU:0
    the graph of worker 1:
      variable global_step /job:ps/task:0/device:CPU:0
      variable w /job:ps/task:1/device:CPU:0
      variable b /job:ps/task:0/device:CPU:0
      inputs /job:worker/task:1/device:CPU:0
      clone 0 /job:worker/task:1/device:GPU:0
      clone 1 /job:worker/task:1/device:GPU:1
      optimizer /job:worker/task:1/device:CPU:0

That starts all tasks on this machine. By hand, start each task in a shell of its own, with
--job_name, --task_index and --hosts=PS0,PS1,WORKER0,WORKER1.
"""

import sys
from typing import NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.replication import build_clones, local_devices, split_batch, with_cpu_devices

flags.DEFINE_integer("num_clones", 2, "Devices of each worker.")
flags.DEFINE_integer("num_workers", 2, "Workers of the job.")
flags.DEFINE_integer("num_ps", 2, "Parameter servers of the job.")
flags.DEFINE_enum("job_name", None, ["ps", "worker"], "None: all tasks, and then the devices.")
flags.DEFINE_integer("task_index", 0, "Of this task in its job.")
flags.DEFINE_list("hosts", None, "Of the ps, then of the workers; none: free ones.")
FLAGS = flags.FLAGS

STEPS, RATE = 20, 0.1


class Deployment(NamedTuple):
  """The place of everything, from three numbers and the index of this worker."""

  num_clones: int  # devices of each worker
  num_workers: int
  num_ps: int
  worker_index: int
  device_type: str = "GPU"  # of the clones

  def variables_device(self):
    """The device function of all that the model builds: variables to the ps in turn."""
    return tf1ps.replica_device_setter(
      self.num_ps, ps_device="/job:ps/device:CPU:0", worker_device=self.cpu())

  def cpu(self):
    """The device of the inputs, and of the worker's part of the optimizer."""
    return "/job:worker/task:%d/device:CPU:0" % self.worker_index

  def clone_devices(self):
    """The devices of the clones."""
    return ["/job:worker/task:%d%s" % (self.worker_index, device)
            for device in local_devices(self.num_clones, self.device_type)]


class Built(NamedTuple):
  """A worker's graph."""

  inputs: tf.Tensor
  clones: tuple  # of `build_clones`: gradients, loss, towers
  train_op: tf.Operation
  weights: list  # the variables that are trained


def batch(worker_index):
  """The batch of one worker, [32, 4]; it is the same in each step."""
  return tf.random.stateless_uniform([32, 4], [0, worker_index], name="inputs")


def loss_of(x):
  """The model: its mean loss over a batch."""
  w = tf.get_variable("w", [4, 1], initializer=tf.ones_initializer())
  b = tf.get_variable("b", [1], initializer=tf.ones_initializer())
  return tf.reduce_mean(tf.square(tf.matmul(x, w) + b), name="loss")


def build(deployment, optimizer):
  """Builds a worker's graph under the setter of a deployment; returns a `Built`."""
  with tf.device(deployment.variables_device()):
    global_step = tf.train.get_or_create_global_step()
    x = batch(deployment.worker_index)
    parts = split_batch(x, deployment.num_clones)
    clones = build_clones(lambda index: loss_of(parts[index]), deployment.clone_devices(),
                          optimizer)
    train_op = optimizer.apply_gradients(clones.grads_and_vars, global_step)
  return Built(x, clones, train_op, tf.trainable_variables())


def print_devices(deployment):
  """Prints the devices of a worker's graph."""
  print("the graph of worker %d:" % deployment.worker_index)
  with tf.Graph().as_default():
    built = build(deployment, tf.train.GradientDescentOptimizer(RATE))
    for variable in tf.global_variables():
      print("  variable %s %s" % (variable.op.name, variable.device))
  print("  inputs", built.inputs.device)
  for tower in built.clones.towers:
    print("  clone %d %s" % (tower.index, tower.loss.device))
  print("  optimizer", built.clones.grads_and_vars[0][0].device)  # where the mean is taken


def train(deployment, target):
  """Trains as one replica; returns the weights that all replicas have made together."""
  is_chief = deployment.worker_index == 0
  with tf.Graph().as_default():
    optimizer = tf1ps.SyncReplicasOptimizer(
      tf.train.GradientDescentOptimizer(RATE), deployment.num_workers)
    built = build(deployment, optimizer)
    hook = optimizer.make_session_run_hook(is_chief)
    with tf1ps.MonitoredTrainingSession(target, is_chief, hooks=[hook]) as session:
      for _ in range(STEPS):
        session.run(built.train_op)
      return session.run(built.weights)


def train_in_one_process(num_workers):
  """Trains on the batches of all workers together; returns the weights."""
  with tf.Graph().as_default():
    loss = loss_of(tf.concat([batch(index) for index in range(num_workers)], axis=0))
    train_op = tf.train.GradientDescentOptimizer(RATE).minimize(loss)
    with tf.Session() as session:
      session.run(tf.global_variables_initializer())
      for _ in range(STEPS):
        session.run(train_op)
      return session.run(tf.trainable_variables())


def run_task(hosts):
  """Serves as a ps, or trains as a worker."""
  cluster = {"ps": hosts[:FLAGS.num_ps], "worker": hosts[FLAGS.num_ps:]}
  server = tf1ps.Server(cluster, FLAGS.job_name, FLAGS.task_index,
                        config=with_cpu_devices(FLAGS.num_clones))
  if FLAGS.job_name == "ps":
    server.join()
    return
  deployment = Deployment(
    FLAGS.num_clones, len(cluster["worker"]), FLAGS.num_ps, FLAGS.task_index, "CPU")
  weights = train(deployment, server.target)
  print("worker %d: %d steps, clones on %s" % (FLAGS.task_index, STEPS, " and ".join(
    device.rpartition("device:")[2] for device in deployment.clone_devices())))
  if FLAGS.task_index == 0:
    alone = train_in_one_process(len(cluster["worker"]))
    print("equal to one process with the whole batch, to 1e-6: %s" % all(
      np.allclose(*pair, rtol=0, atol=1e-6) for pair in zip(weights, alone)))


def main(_):
  """Runs a task of the job, or all of them; then prints the devices of each worker's graph."""
  tf.disable_v2_behavior()
  hosts = FLAGS.hosts or find_free_addresses(FLAGS.num_ps + FLAGS.num_workers)
  if FLAGS.job_name:
    run_task(hosts)
    return
  tasks = [("worker", index) for index in range(FLAGS.num_workers)] + [
    ("ps", index) for index in range(FLAGS.num_ps)]
  run_together(lambda: app.run(main), *[sys.argv[1:] + [
    "--hosts=" + ",".join(hosts), "--job_name=" + job, "--task_index=%d" % index]
    for job, index in tasks])
  for index in range(FLAGS.num_workers):
    print_devices(Deployment(FLAGS.num_clones, FLAGS.num_workers, FLAGS.num_ps, index))


if __name__ == "__main__":
  app.run(main)
