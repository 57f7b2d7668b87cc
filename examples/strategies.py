"""TensorFlow 2's distribution strategies, each by its counterpart for graphs and sessions.

Example N9.
Mechanism: the same problem under each strategy. Each of two towers has a target for w, 1 or 3. The
loss is the mean of (w - target)² / 2, and the rate is 0.5, so each step moves w half of the way
from 0 to 2.

- No strategy: one model, on the device that TensorFlow chooses.
- One device (OneDeviceStrategy): one model, all of it on CPU:1.
- Central storage (CentralStorageStrategy): one w on CPU:0, a tower on CPU:1 and one on CPU:2.
- Mirrored (MirroredStrategy): a w and a tower on CPU:1, and on CPU:2. The towers reduce gradients.
- Mirrored over tasks (MultiWorkerMirroredStrategy): a w and a tower in each of two processes.

What to look for: the values of w are the same in all lines, and its devices differ. Logical CPU
devices take the place of GPUs.
Toolkit: tf1ps.replication.build_in_graph_synchronous for central storage, and build_mirrored for
both mirrored forms (docs/replication.md#in-graph-by-hand). ParameterServerStrategy is tf1ps'
default: see programs/mnist_replica.py. TPUStrategy has no counterpart: tf1ps.v1 refuses a TPU.

    $ python examples/strategies.py
    no strategy:          [1.0, 1.5, 1.75, 1.875], w on the default device
    one device:           [1.0, 1.5, 1.75, 1.875], w on CPU:1
    central storage:      [1.0, 1.5, 1.75, 1.875], w on CPU:0
    mirrored:             [1.0, 1.5, 1.75, 1.875], w on CPU:1, w on CPU:2
    mirrored over tasks:  [1.0, 1.5, 1.75, 1.875], w on /job:worker/task:0
    mirrored over tasks:  [1.0, 1.5, 1.75, 1.875], w on /job:worker/task:1
"""

import sys
import time

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession, Task
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.replication import (
  build_in_graph_synchronous,
  build_mirrored,
  watch_peers,
  with_cpu_devices,
)

TARGETS = [1.0, 3.0]
STEPS = 4
CPU_1_AND_2 = ["/device:CPU:1", "/device:CPU:2"]


def loss_of(targets):
  """The mean over some targets of (w - target)² / 2."""
  w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
  return tf.reduce_mean(tf.square(w - targets)) / 2.0


def tower(index):
  """The loss of one tower."""
  return loss_of(TARGETS[index:index + 1])


def optimizer():
  """Gradient descent."""
  return tf.train.GradientDescentOptimizer(0.5)


# Each strategy returns its train op, and the operations that a session runs before the first step.


def no_strategy():
  """One model that has all targets."""
  return optimizer().minimize(loss_of(TARGETS)), []


def one_device():
  """The same on one device."""
  with tf.device("/device:CPU:1"):
    return no_strategy()


def central_storage():
  """One set of variables, and towers that read it."""
  return build_in_graph_synchronous(
    tower, CPU_1_AND_2, optimizer(), variables_device="/device:CPU:0").train_op, []


def mirrored():
  """A set of variables for each device, with equal values."""
  model = build_mirrored(tower, CPU_1_AND_2, optimizer)
  return model.train_op, [model.check_op, model.start_op]


def train(session, train_op, starts):
  """Returns w after each step."""
  session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
  for start in starts:
    session.run(start)
  w, = tf.trainable_variables()
  values = []
  for _ in range(STEPS):
    session.run(train_op)
    values.append(float(session.run(w)))
  return values


def show(name, values):
  """Prints a strategy's values, and the devices of all variables w."""
  places = [variable.device.replace("/device:", "") or "the default device"
            for variable in tf.global_variables() + tf.local_variables()
            if variable.op.name.endswith("w")]
  print("%-21s %s, %s" % (name + ":", values, ", ".join("w on " + place for place in places)))


def in_one_process():
  """Trains under each strategy that needs one process."""
  for name, build in [("no strategy", no_strategy), ("one device", one_device),
                      ("central storage", central_storage), ("mirrored", mirrored)]:
    with tf.Graph().as_default():
      train_op, starts = build()
      with tf.Session(config=with_cpu_devices(3)) as session:
        show(name, train(session, train_op, starts))


def as_worker(index, hosts):
  """Trains together with the other worker."""
  own = "/job:worker/task:%d" % index
  server = tf.train.Server({"worker": hosts}, "worker", index)
  model = build_mirrored(
    lambda device: tower(index), [own], optimizer, task_index=index, num_tasks=2)
  other = Task("worker", 1 - index, hosts[1 - index])
  with BoundedSession(server.target) as session:
    with watch_peers(session, [other], timeout=60):
      values = train(session, model.train_op, [model.check_op, model.start_op])
  show("mirrored over tasks", values)
  time.sleep(2.0)  # the other's last step may still be fetching from this process


def main():
  """Starts a process for the first four strategies, and two for the last one."""
  if len(sys.argv) == 1:
    hosts = find_free_addresses(2)
    return run_together(main, ["one"], ["0"] + hosts, ["1"] + hosts)
  tf.disable_v2_behavior()
  if sys.argv[1] == "one":
    in_one_process()
  else:
    as_worker(int(sys.argv[1]), sys.argv[2:])


if __name__ == "__main__":
  main()
