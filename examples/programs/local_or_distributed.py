"""One script, local or distributed: environment variables decide.

Example E8.
Mechanism: a scheduler sets JOB_NAME, TASK_INDEX, PS_HOSTS and WORKER_HOSTS for each task. Without
JOB_NAME the same script trains in its own process: it has no server, no device setter, and the
master "". The rest of the script is the same in both cases. Each of five updates moves w half of
the way to 2, so w ends at the same value.
Toolkit: tf1ps.Server ends the ps. tf1ps.MonitoredTrainingSession takes master="", too. Programs for
`tf1ps-local` and `tf1ps-worker` need none of this: these commands take the cluster from flags or
from TF_CONFIG (docs/cluster.md).

    $ python examples/programs/local_or_distributed.py
    local: w 1.9375 at step 5

Distributed, with one worker, each task in a shell of its own:

    1$ JOB_NAME=ps TASK_INDEX=0 PS_HOSTS=127.0.0.1:2221 WORKER_HOSTS=127.0.0.1:2222 \
        python examples/programs/local_or_distributed.py
    2$ JOB_NAME=worker TASK_INDEX=0 PS_HOSTS=127.0.0.1:2221 WORKER_HOSTS=127.0.0.1:2222 \
        python examples/programs/local_or_distributed.py
    /job:worker/task:0: w 1.9375 at step 5
"""

import os

import tensorflow.compat.v1 as tf

import tf1ps


def start_task():
  """Returns the master of the session, its device and the name of the task, by the environment.

  A ps serves in this function, and ends here with its job.
  """
  if "JOB_NAME" not in os.environ:
    return "", None, "local"
  job, index = os.environ["JOB_NAME"], int(os.environ["TASK_INDEX"])
  cluster = {"ps": os.environ["PS_HOSTS"].split(","),
             "worker": os.environ["WORKER_HOSTS"].split(",")}
  server = tf1ps.Server(cluster, job, index)
  if job == "ps":
    server.join()
  worker = "/job:worker/task:%d" % index
  return server.target, tf1ps.replica_device_setter(cluster=cluster, worker_device=worker), worker


def main():
  """Trains, alone or as a worker."""
  tf.disable_v2_behavior()
  master, device, name = start_task()
  with tf.device(device):  # None: no device at all
    global_step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(
      tf.square(w - 2.0) / 2.0, global_step)
  is_chief = name in ("local", "/job:worker/task:0")
  with tf1ps.MonitoredTrainingSession(master, is_chief) as session:
    for _ in range(5):
      session.run(train_op)
    value, step = session.run([w, global_step])
  print("%s: w %s at step %d" % (name, float(value), step))


if __name__ == "__main__":
  main()
