"""Two ps and three workers: a session on one of them, and operations pinned to others.

Examples B09, B10, B11. Section: clusters.
Mechanism: cluster, job, task; the master that a client is connected to; pins by job, task, device.
1. Five servers are started, here in one process to need one shell; on five machines it is the same.
2. A client may be connected to any of them, which is then its master: the graph is sent there, and
   from there its parts to whom they are pinned. Not pinned: on TensorFlow 2.x all of it runs on the
   master, on 1.x on the first task of the cluster in the order of names (/job:ps/task:0).
3. A pin may say less than a device: a job, a task of it, or a device of a task. What it leaves open
   is filled in like that: /job:worker is the master on 2.x if that is a worker, and worker 0 on
   1.x. (Here the master is worker 0.) Where operations ran is read from the trace of the run: what
   the graph says is only what was asked for.
The last line is no result but a warning: a name that the cluster does not have is an error even
where `allow_soft_placement` is set, since that moves operations between devices of one task only.
Toolkit: bare TensorFlow.

    $ python examples/book/cluster_of_five.py --ps_hosts=127.0.0.1:2221,127.0.0.1:2222 \
        --worker_hosts=127.0.0.1:2223,127.0.0.1:2224,127.0.0.1:2225
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

import argparse

import tensorflow.compat.v1 as tf


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


def main():
  """Starts the cluster, and is a client of it."""
  parser = argparse.ArgumentParser()
  parser.add_argument("--ps_hosts", required=True)
  parser.add_argument("--worker_hosts", required=True)
  flags = parser.parse_args()
  tf.disable_v2_behavior()
  cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","),
                                  "worker": flags.worker_hosts.split(",")})
  servers = start_servers(cluster)
  print({job: cluster.num_tasks(job) for job in sorted(cluster.jobs)})
  print("not pinned, worker 1 is the master: c =", not_pinned(servers["worker", 1].target))
  pinned(servers["worker", 0].target)
  print("on /job:worker/task:3:", beyond_the_cluster(servers["worker", 0].target))


if __name__ == "__main__":
  main()
