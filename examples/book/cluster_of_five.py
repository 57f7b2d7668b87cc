"""Two ps and three workers: a session on one of them, and operations pinned to others.

Examples B09, B10, B11. Section: clusters.
Mechanism: cluster, job, task; the master of a client; pins by job, task and device.
1. The example starts five servers. One process holds them all, so that you need one shell; on five
   machines the result is the same.
2. A client may connect to any server, which is then its master. The master gets the graph and sends
   each part to the task that the part is pinned to. On TensorFlow 2.x the master itself runs the
   operations without a pin. On 1.x the first task of the cluster in the order of names runs them,
   here /job:ps/task:0.
3. A pin may be less than a device: a job, a task of it, or a device of a task. TensorFlow completes
   it. On 2.x /job:worker is the master, if the master is a worker; on 1.x it is worker 0. (Here
   the master is worker 0.) The example reads the place of an operation from the trace of the run,
   since the graph holds only the request.

The last line is a warning. A name that the cluster does not have is an error, even with
`allow_soft_placement`, which moves operations only between the devices of one task.
Toolkit: bare TensorFlow.

    $ python examples/book/cluster_of_five.py
    {'ps': 2, 'worker': 3}
    not pinned, worker 1 is the master: c = 9.0
    pinned, worker 0 is the master: c = 4.0
    a on /job:ps
      ran on /job:ps/task:0/device:CPU:0
    b on /job:worker
      ran on /job:worker/task:0/device:CPU:0
    c on /job:worker/task:1
      ran on /job:worker/task:1/device:CPU:0
    d on /job:worker/task:2/device:CPU:0
      ran on /job:worker/task:2/device:CPU:0
    on /job:worker/task:3: InvalidArgumentError
"""

import tensorflow.compat.v1 as tf
from absl import app, flags

from tf1ps.launch import find_free_addresses

flags.DEFINE_list("ps_hosts", None, "Two; none: free ones.")
flags.DEFINE_list("worker_hosts", None, "Three; none: free ones.")


def start_servers(cluster):
  """Starts all servers of the cluster in this process; returns them by (job, index)."""
  return {(job, index): tf.train.Server(cluster, job, index)
          for job in cluster.jobs for index in range(cluster.num_tasks(job))}


def not_pinned(target):
  """b = a + 2, c = b * 3, wherever the master likes."""
  with tf.Graph().as_default(), tf.Session(target) as session:
    a = tf.constant(1.0)
    b = a + 2
    c = b * 3
    return float(session.run(c))


def pinned(target):
  """a on a job, b on another one, c on a task, d on a device; shows where each has run."""
  with tf.Graph().as_default(), tf.Session(target) as session:
    with tf.device("/job:ps"):
      a = tf.Variable(1.0, name="a", use_resource=True)
    with tf.device("/job:worker"):
      b = tf.add(a, 2, name="b")
    with tf.device("/job:worker/task:1"):
      c = tf.add(a, b, name="c")
    with tf.device("/job:worker/task:2/device:CPU:0"):
      d = tf.negative(c, name="d")
    session.run(a.initializer)
    trace = tf.RunMetadata()
    c_value, _ = session.run([c, d], options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE),
                             run_metadata=trace)
    print("pinned, worker 0 is the master: c =", float(c_value))
    ran_on = {node.node_name: device.device.replace("/replica:0", "")
              for device in trace.step_stats.dev_stats for node in device.node_stats}
    for op in (a.op, b.op, c.op, d.op):
      print("%s on %s" % (op.name, op.device))
      print("  ran on", ran_on[op.name])


def beyond_the_cluster(target):
  """A task that is not there."""
  with tf.Graph().as_default():
    with tf.device("/job:worker/task:3"):
      a = tf.constant(1.0)
    config = tf.ConfigProto(allow_soft_placement=True)
    with tf.Session(target, config=config) as session:
      try:
        session.run(a)
      except tf.errors.InvalidArgumentError as error:
        return type(error).__name__


def main(_):
  """Starts the cluster, and is a client of it."""
  tf.disable_v2_behavior()
  cluster = tf.train.ClusterSpec({"ps": flags.FLAGS.ps_hosts or find_free_addresses(2),
                                  "worker": flags.FLAGS.worker_hosts or find_free_addresses(3)})
  servers = start_servers(cluster)
  print({job: cluster.num_tasks(job) for job in sorted(cluster.jobs)})
  print("not pinned, worker 1 is the master: c =", not_pinned(servers["worker", 1].target))
  pinned(servers["worker", 0].target)
  print("on /job:worker/task:3:", beyond_the_cluster(servers["worker", 0].target))


if __name__ == "__main__":
  app.run(main)
