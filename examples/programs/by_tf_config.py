"""A trainer that learns its place from TF_CONFIG: a ps, a chief and a worker.

Example E13.
Mechanism: a scheduler puts the JSON text TF_CONFIG into each task's environment. "cluster" is the
same for all tasks, "task" is the task's own. The program has no flags. In a cluster with the job
"chief" this task initialises and saves; without it, worker 0 does.
Each of the two tasks that train makes 40 updates, and each update moves w half of the way to 2.
Toolkit: tf1ps.cluster.resolve_cluster checks the text, and its errors name the part that is wrong
(docs/cluster.md). tf1ps.Server ends the ps. Programs for `tf1ps-worker` and `tf1ps-local` need none
of this: each of the commands of tf1ps reads TF_CONFIG, and so does tf.estimator
(docs/drop_in.md#estimators).

    $ python examples/programs/by_tf_config.py
    /job:chief/task:0 is the chief: 40 updates, w 2.0
    /job:worker/task:0 is not the chief: 40 updates, w 2.0

Without TF_CONFIG the example takes the place of a scheduler. It starts the three tasks on this
machine, and hands each one its text as an argument. By hand, each in a shell of its own:

    1$ TF_CONFIG='{"task": {"type": "ps", "index": 0}, "cluster": {"ps": ["127.0.0.1:2221"], \
        "chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}}' \
        python examples/programs/by_tf_config.py
    2$ TF_CONFIG='{"task": {"type": "chief", "index": 0}, "cluster": {"ps": ["127.0.0.1:2221"], \
        "chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}}' \
        python examples/programs/by_tf_config.py
    /job:chief/task:0 is the chief: 40 updates, w 2.0
    3$ TF_CONFIG='{"task": {"type": "worker", "index": 0}, "cluster": {"ps": ["127.0.0.1:2221"], \
        "chief": ["127.0.0.1:2222"], "worker": ["127.0.0.1:2223"]}}' \
        python examples/programs/by_tf_config.py
    /job:worker/task:0 is not the chief: 40 updates, w 2.0
"""

import json
import os
import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.cluster import resolve_cluster
from tf1ps.launch import find_free_addresses, run_together

STEPS = 40


def run_all():
  """Runs the three tasks on this machine, each with its own text."""
  jobs = ["chief", "worker", "ps"]
  cluster = {job: [address] for job, address in zip(jobs, find_free_addresses(3))}
  run_together(main, *[[json.dumps({"task": {"type": job, "index": 0}, "cluster": cluster})]
                       for job in jobs])


def main():
  """Serves as the ps, trains as the chief or the worker, or starts all three."""
  tf_config = os.environ.get("TF_CONFIG") or " ".join(sys.argv[1:])
  if not tf_config:
    return run_all()
  cluster = resolve_cluster(tf_config=tf_config, needs_ps="this trainer")
  tf.disable_v2_behavior()
  server = tf1ps.Server(cluster)
  if cluster.job_name == "ps":
    server.join()  # ends when the chief has ended
    return
  with tf.device(tf1ps.replica_device_setter(
      cluster=cluster.cluster_spec(), worker_device=cluster.task.name)):
    global_step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    train_op = tf.train.GradientDescentOptimizer(0.5).minimize(
      tf.square(w - 2.0) / 2.0, global_step)
  with tf1ps.MonitoredTrainingSession(server.target, cluster.is_chief) as session:
    for _ in range(STEPS):
      session.run(train_op)
    value = float(session.run(w))
  print("%s is %sthe chief: %d updates, w %s" % (
    cluster.task.name, "" if cluster.is_chief else "not ", STEPS, value))


if __name__ == "__main__":
  main()
