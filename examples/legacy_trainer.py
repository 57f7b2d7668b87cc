"""A trainer as the deployment guide for distributed TensorFlow taught it, with flags and loop.

Example E1.
Mechanism: one file for all tasks. Each task is a process of its own: a ps serves, and a worker
trains. The program fits y = 3 x + 2, and the workers print their falling loss.
The trainer says tf1ps in one line only, the import below. With `from tensorflow.compat.v1 import
train as dist` in its place, the tasks run on stock TensorFlow. There you must kill each ps, and a
worker that comes late waits for 30 seconds. Beside the trainer stands run_all, which starts all
tasks on this machine by tf1ps.launch.
Toolkit: tf1ps' drop-ins (docs/drop_in.md). All tasks end by themselves.

    $ python examples/legacy_trainer.py
    worker 0: step 1, global step ..., loss ...
    ...
    worker 1: step 1, global step ..., loss ...
    ...

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/legacy_trainer.py --job_name=worker --task_index=0 \
        --ps_hosts=127.0.0.1:2222,127.0.0.1:2223 --worker_hosts=127.0.0.1:2224,127.0.0.1:2225
    2$ python examples/legacy_trainer.py --job_name=worker --task_index=1 \
        --ps_hosts=127.0.0.1:2222,127.0.0.1:2223 --worker_hosts=127.0.0.1:2224,127.0.0.1:2225
    3$ python examples/legacy_trainer.py --job_name=ps --task_index=0 \
        --ps_hosts=127.0.0.1:2222,127.0.0.1:2223 --worker_hosts=127.0.0.1:2224,127.0.0.1:2225
    4$ python examples/legacy_trainer.py --job_name=ps --task_index=1 \
        --ps_hosts=127.0.0.1:2222,127.0.0.1:2223 --worker_hosts=127.0.0.1:2224,127.0.0.1:2225
"""

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps as dist

flags.DEFINE_list("ps_hosts", ["127.0.0.1:2222", "127.0.0.1:2223"], "Addresses of the ps.")
flags.DEFINE_list("worker_hosts", ["127.0.0.1:2224", "127.0.0.1:2225"], "Those of the workers.")
flags.DEFINE_enum("job_name", None, ["ps", "worker"], "None: all tasks.")
flags.DEFINE_integer("task_index", 0, "Of this task in its job.")
flags.DEFINE_integer("steps", 1000, "Global steps.")
flags.DEFINE_string("checkpoint_dir", None, "None: no checkpoints.")
FLAGS = flags.FLAGS


def build_model():
  """Builds the line, its loss and its update; variables go where the device scope says."""
  x = tf.random_uniform([64, 1], -1.0, 1.0)
  noise = tf.random_normal([64, 1], stddev=0.1)
  target = 3.0 * x + 2.0 + noise
  w = tf.get_variable("w", [1, 1], initializer=tf.zeros_initializer())
  b = tf.get_variable("b", [1], initializer=tf.zeros_initializer())
  loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - target))
  global_step = tf.train.get_or_create_global_step()
  train_op = tf.train.AdagradOptimizer(0.1).minimize(loss, global_step=global_step)
  return train_op, loss, global_step


def run_all():
  """Runs all four tasks on this machine."""
  from tf1ps.launch import find_free_addresses, run_together

  hosts = find_free_addresses(4)
  run_together(lambda: app.run(main), *[["--job_name=" + job, "--task_index=%d" % index] + [
    "--ps_hosts=" + ",".join(hosts[:2]), "--worker_hosts=" + ",".join(hosts[2:])]
    for job, index in [("worker", 0), ("worker", 1), ("ps", 0), ("ps", 1)]])


def main(_):
  """Serves as a ps, or trains as a worker."""
  if not FLAGS.job_name:
    return run_all()
  tf.disable_v2_behavior()
  cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts, "worker": FLAGS.worker_hosts})
  server = dist.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)

  if FLAGS.job_name == "ps":
    server.join()
    return

  with tf.device(dist.replica_device_setter(
      worker_device="/job:worker/task:%d" % FLAGS.task_index, cluster=cluster)):
    train_op, loss, global_step = build_model()

  hooks = [tf.train.StopAtStepHook(last_step=FLAGS.steps)]
  with dist.MonitoredTrainingSession(
      master=server.target, is_chief=(FLAGS.task_index == 0),
      checkpoint_dir=FLAGS.checkpoint_dir, hooks=hooks) as session:
    local_step = 0
    while not session.should_stop():
      _, value, step = session.run([train_op, loss, global_step])
      local_step += 1
      if local_step % 100 == 1:
        print("worker %d: step %d, global step %d, loss %.4f" % (
          FLAGS.task_index, local_step, np.asarray(step), value), flush=True)


if __name__ == "__main__":
  app.run(main)
