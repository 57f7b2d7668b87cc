"""The MNIST replica: one hidden layer, Adam, asynchronous or synchronous.

Example E2.
Mechanism: between-graph replication. Worker 0, the chief, initialises the variables, and the others
wait for that. All workers read the same data in batches of 100, each in an order of its own. The
network is 64-100-10 on the digits in data/. With --data_dir=FOLDER it is 784-100-10 on MNIST's four
IDX files. With --sync_replicas each update takes one gradient of each worker, so the local step is
the global step. Without it, the global step counts the updates of both workers.
Toolkit: tf1ps' drop-ins (docs/drop_in.md). The original program never ended its ps. Its synchronous
form needed initial tokens and a queue runner on the chief, and its end depended on luck
(docs/replication.md#synchronous-updates).

    $ python examples/programs/mnist_replica.py
    worker 0 initialises
    worker 0: step 1, global step ...
    ...
    worker 0: validation cross entropy 0...
    worker 1 waits for worker 0
    worker 1: step 1, global step ...
    ...
    worker 1: validation cross entropy 0...

Synchronous, with half as many steps, because each step uses two batches:

    $ python examples/programs/mnist_replica.py --sync_replicas --train_steps=150
    worker 0 initialises
    worker 0: step 1, global step 1
    worker 0: step 51, global step 51
    worker 0: step 101, global step 101
    worker 0: validation cross entropy 0...
    worker 1 waits for worker 0
    worker 1: step 1, global step 1
    worker 1: step 51, global step 51
    worker 1: step 101, global step 101
    worker 1: validation cross entropy 0...

Without --job_name all tasks start on this machine. By hand, each in a shell of its own:

    1$ python examples/programs/mnist_replica.py \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223 --job_name=worker --task_index=0
    2$ python examples/programs/mnist_replica.py \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223 --job_name=worker --task_index=1
    3$ python examples/programs/mnist_replica.py \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223 --job_name=ps --task_index=0
"""

import pathlib
import sys

import numpy as np
import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses, run_together

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
import handwritten_digits

flags.DEFINE_enum("job_name", None, ["ps", "worker"], "None: all tasks.")
flags.DEFINE_integer("task_index", 0, "Of this task in its job.")
flags.DEFINE_list("hosts", None, "One ps, then the workers; none: free ones.")
flags.DEFINE_bool("sync_replicas", False, "Each update takes one gradient of each worker.")
flags.DEFINE_integer("train_steps", 300, "Global steps.")
flags.DEFINE_string("data_dir", None, "With MNIST's four IDX files.")
FLAGS = flags.FLAGS


def build_model(pixels):
  """Returns the inputs and the mean cross entropy."""
  images = tf.placeholder(tf.float32, [None, pixels])
  digits = tf.placeholder(tf.int32, [None])
  zeros = tf.zeros_initializer()
  hidden = tf.nn.relu(tf.matmul(images, tf.get_variable("hid_w", [pixels, 100]))
                      + tf.get_variable("hid_b", [100], initializer=zeros))
  logits = (tf.matmul(hidden, tf.get_variable("sm_w", [100, 10]))
            + tf.get_variable("sm_b", [10], initializer=zeros))
  return images, digits, tf.losses.sparse_softmax_cross_entropy(digits, logits)


def main(_):
  """Serves as a ps, or trains as a worker."""
  hosts, index = FLAGS.hosts or find_free_addresses(3), FLAGS.task_index
  if not FLAGS.job_name:
    tasks = [("worker", index) for index in range(len(hosts) - 1)] + [("ps", 0)]
    return run_together(lambda: app.run(main), *[sys.argv[1:] + [
      "--hosts=" + ",".join(hosts), "--job_name=" + job, "--task_index=%d" % index]
      for job, index in tasks])
  tf.disable_v2_behavior()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  server = tf1ps.Server(cluster, FLAGS.job_name, index)
  if FLAGS.job_name == "ps":
    server.join()
    return

  is_chief, hooks = index == 0, []
  (train_images, train_digits), validation = handwritten_digits.read_to_feed(FLAGS.data_dir)
  with tf.device(tf1ps.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % index)):
    global_step = tf.train.get_or_create_global_step()
    images, digits, cross_entropy = build_model(train_images.shape[1])
    optimizer = tf.train.AdamOptimizer(0.01)
    if FLAGS.sync_replicas:
      optimizer = tf1ps.SyncReplicasOptimizer(optimizer, len(hosts) - 1)
      hooks.append(optimizer.make_session_run_hook(is_chief))
    train_op = optimizer.minimize(cross_entropy, global_step)

  print("worker %d %s" % (index, "initialises" if is_chief else "waits for worker 0"), flush=True)
  order = np.random.RandomState(index)
  with tf1ps.MonitoredTrainingSession(server.target, is_chief, hooks=hooks) as session:
    local_step = step = 0
    while step < FLAGS.train_steps:
      rows = order.randint(len(train_digits), size=100)
      session.run(train_op, {images: train_images[rows], digits: train_digits[rows]})
      step = session.run(global_step)
      local_step += 1
      if local_step % 50 == 1:
        print("worker %d: step %d, global step %d" % (index, local_step, step), flush=True)
    print("worker %d: validation cross entropy %.3f" % (index, session.run(
      cross_entropy, dict(zip([images, digits], validation)))))


if __name__ == "__main__":
  app.run(main)
