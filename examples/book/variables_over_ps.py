"""Variables take turns on the ps, everything else stays on the worker; inner devices are merged.

Example B12. Section: clusters.
Mechanism: `replica_device_setter` is a device function. TensorFlow merges its result with the
scopes of `tf.device` inside it.
The plain case first: v1 to v5 go to the two ps in turn. s is not a variable, so the setter returns
/job:worker.
Then scopes inside: the setter returns /job:worker for p1 and p2, too. `with tf.device("/task:1")`
inside completes this device for p1, and "/cpu:0" for p2. In each field the inner scope comes first,
and the setter fills the open fields. So an inner scope can also override the setter:
"/job:ps/task:0" keeps t on ps 0. The sixth variable goes under "/task:0" to ps 0, although it is
the turn of ps 1. (That turn is used up, so the seventh variable is on ps 0, too.)
`/job:worker` without a task is the session's own worker on TensorFlow 2.x, and worker 0 on 1.x. In
a trainer, name the task: `worker_device="/job:worker/task:%d"`.
Toolkit: bare TensorFlow. tf1ps' setter takes turns in the same way. But it keeps local variables
(metrics, epoch counters) on the worker, where TensorFlow's setter shares them among all workers.
The last line shows this (docs/drop_in.md).

    $ python examples/book/variables_over_ps.py
    v1 /job:ps/task:0
    v2 /job:ps/task:1
    v3 /job:ps/task:0
    v4 /job:ps/task:1
    v5 /job:ps/task:0
    s /job:worker
    p1 /job:worker/task:1
    p2 /job:worker/device:CPU:0
    t /job:ps/task:0
    v6 /job:ps/task:0
    v7 /job:ps/task:0
    s, p1, p2 = [3.0, 6.0, 9.0]
    a local variable: stock /job:ps/task:0, tf1ps /job:worker/task:0
"""

import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses

flags.DEFINE_list("ps_hosts", None, "Two; none: free ones.")
flags.DEFINE_list("worker_hosts", None, "Two; none: free ones.")


def plain_case(setter):
  """Builds five variables and a sum, without a device of their own; returns all of them."""
  with tf.device(setter):
    variables = [tf.Variable(float(n), name="v%d" % n) for n in range(1, 6)]
    s = tf.add(variables[0], variables[1], name="s")
  return variables + [s]


def scopes_inside(setter, s):
  """Names devices inside the setter's scope; returns what stands there."""
  with tf.device(setter):
    with tf.device("/task:1"):
      p1 = tf.multiply(2.0, s, name="p1")
    with tf.device("/cpu:0"):
      p2 = tf.multiply(3.0, s, name="p2")
    with tf.device("/job:ps/task:0"):
      t = tf.negative(s, name="t")
    with tf.device("/task:0"):
      v6 = tf.Variable(6.0, name="v6")
    v7 = tf.Variable(7.0, name="v7")
  return [p1, p2, t, v6, v7]


def local_variable(setter):
  """The device of a local variable, under a setter."""
  with tf.Graph().as_default():
    with tf.device(setter(ps_tasks=2, worker_device="/job:worker/task:0")):
      return tf.get_local_variable("correct", [], initializer=tf.zeros_initializer()).device


def main(_):
  """Starts the servers, and runs the graph on the last worker."""
  tf.disable_v2_behavior()
  cluster = tf.train.ClusterSpec({"ps": flags.FLAGS.ps_hosts or find_free_addresses(2),
                                  "worker": flags.FLAGS.worker_hosts or find_free_addresses(2)})
  servers = [tf.train.Server(cluster, job, index)
             for job in cluster.jobs for index in range(cluster.num_tasks(job))]
  setter = tf.train.replica_device_setter(ps_tasks=2)  # one for both: it keeps the turn
  *variables, s = plain_case(setter)
  p1, p2, *others = scopes_inside(setter, s)
  for thing in variables + [s, p1, p2] + others:
    print(thing.op.name, thing.device)
  with tf.Session(servers[-1].target) as session:
    session.run(tf.global_variables_initializer())
    print("s, p1, p2 =", [float(value) for value in session.run([s, p1, p2])])
  print("a local variable: stock %s, tf1ps %s" % (
    local_variable(tf.train.replica_device_setter), local_variable(tf1ps.replica_device_setter)))


if __name__ == "__main__":
  app.run(main)
