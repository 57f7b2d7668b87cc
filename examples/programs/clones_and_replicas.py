"""Clones and replicas by one configuration: where everything goes for 2 clones, 2 workers, 2 ps.

Example E7.
Mechanism: a replica is a worker, a clone a device of it. Four devices follow from three numbers:
variables on the ps in turn; inputs and optimizer on the worker's CPU; each clone on a GPU. Slim's
deployment library, which the notes ask about, left TensorFlow with tf.contrib; its four questions
are answered here by a device setter, a string each, and tf1ps' clones (docs/in_graph.md), which
also reduces the gradients of the clones to one that travels to the ps.
What to look for: the graph is built and its devices are read off; it is not run, so no GPU is
needed. Each worker builds the same, but for its index.
Toolkit: tf1ps.replication.clones and tf1ps.replica_device_setter.

    $ python examples/programs/clones_and_replicas.py --num_clones=2 --num_workers=2 --num_ps=2
    worker 0:
      variable global_step /job:ps/task:0/device:CPU:0
      variable w /job:ps/task:1/device:CPU:0
      variable b /job:ps/task:0/device:CPU:0
      inputs /job:worker/task:0/device:CPU:0
      clone 0 /job:worker/task:0/device:GPU:0
      clone 1 /job:worker/task:0/device:GPU:1
      optimizer /job:worker/task:0/device:CPU:0
    worker 1:
      variable global_step /job:ps/task:0/device:CPU:0
      variable w /job:ps/task:1/device:CPU:0
      variable b /job:ps/task:0/device:CPU:0
      inputs /job:worker/task:1/device:CPU:0
      clone 0 /job:worker/task:1/device:GPU:0
      clone 1 /job:worker/task:1/device:GPU:1
      optimizer /job:worker/task:1/device:CPU:0
"""

import argparse
from typing import NamedTuple

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.replication import build_clones, local_devices, split_batch


class Deployment(NamedTuple):
  """Who computes what, from three numbers and the index of this worker."""

  num_clones: int  # devices of each worker
  num_workers: int
  num_ps: int
  worker_index: int

  def cluster(self):
    """A cluster of that size; addresses do not matter for placement."""
    return {"ps": ["ps%d.example.com:2222" % i for i in range(self.num_ps)],
            "worker": ["worker%d.example.com:2222" % i for i in range(self.num_workers)]}

  def variables_device(self):
    """The device function of all that the model builds: variables to the ps in turn."""
    return tf1ps.replica_device_setter(
      cluster=self.cluster(), ps_device="/job:ps/device:CPU:0", worker_device=self.cpu())

  def cpu(self):
    """Of the inputs, and of what is left of the optimizer on the worker."""
    return "/job:worker/task:%d/device:CPU:0" % self.worker_index

  def clone_devices(self):
    """Of the clones."""
    return ["/job:worker/task:%d%s" % (self.worker_index, device)
            for device in local_devices(self.num_clones, "GPU")]


def build(deployment):
  """Builds what a worker builds; returns {what: its device}, in the order of the docstring."""
  with tf.device(deployment.variables_device()):
    global_step = tf.train.get_or_create_global_step()
    x = tf.random.stateless_uniform([32, 4], [0, deployment.worker_index], name="inputs")
    parts = split_batch(x, deployment.num_clones)

    def tower(index):
      w = tf.get_variable("w", [4, 1])
      b = tf.get_variable("b", [1])
      return tf.reduce_mean(tf.square(tf.matmul(parts[index], w) + b), name="loss")

    optimizer = tf.train.GradientDescentOptimizer(0.1)
    built = build_clones(tower, deployment.clone_devices(), optimizer)
    optimizer.apply_gradients(built.grads_and_vars, global_step)
  found = {"variable " + variable.op.name: variable.device for variable in tf.global_variables()}
  found["inputs"] = x.device
  found.update(("clone %d" % tower.index, tower.loss.device) for tower in built.towers)
  found["optimizer"] = built.grads_and_vars[0][0].device  # where the mean is taken
  return found


def main():
  """Prints the devices of each worker's graph."""
  parser = argparse.ArgumentParser()
  for name in ("num_clones", "num_workers", "num_ps"):
    parser.add_argument("--" + name, type=int, default=2)
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  for index in range(flags.num_workers):
    print("worker %d:" % index)
    with tf.Graph().as_default():
      found = build(Deployment(flags.num_clones, flags.num_workers, flags.num_ps, index))
    for what, device in found.items():
      print("  %s %s" % (what, device))


if __name__ == "__main__":
  main()
