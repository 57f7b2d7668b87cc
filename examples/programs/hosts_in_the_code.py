"""A trainer with its hosts in the code, and with summaries on each worker.

Example E4.
Mechanism: the smallest distributed program has no flags but job and index: the addresses of its
tasks stand in HOSTS. So another machine needs another file. A portable program reads them from
flags, from TF_CONFIG (by_tf_config.py) or from environment variables (local_or_distributed.py).
Here --hosts= replaces the constant, since two jobs cannot share a port.
Each worker writes summaries of its own steps into a folder of its own. MonitoredTrainingSession
writes the chief's summaries, which show the chief's batches only. In the end each worker reads its
events back.
Toolkit: tf1ps.Server and MonitoredTrainingSession, which end the ps; summaries are TensorFlow's.

    $ python examples/programs/hosts_in_the_code.py
    worker 0: 20 losses in 1 events file, as seen while training: True
    worker 1: 20 losses in 1 events file, as seen while training: True

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/programs/hosts_in_the_code.py worker 0 /tmp/events \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    2$ python examples/programs/hosts_in_the_code.py worker 1 /tmp/events \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
    3$ python examples/programs/hosts_in_the_code.py ps 0 /tmp/events \
        --hosts=127.0.0.1:2221,127.0.0.1:2222,127.0.0.1:2223
"""

import os
import tempfile

import tensorflow.compat.v1 as tf
from absl import app, flags

import tf1ps
from tf1ps.launch import find_free_addresses, run_together

HOSTS = ["127.0.0.1:2221", "127.0.0.1:2222", "127.0.0.1:2223"]  # the ps, then the workers

flags.DEFINE_list("hosts", HOSTS, "Take the place of HOSTS.")


def losses_in(folder):
  """Reads the events of a folder: returns the values called "loss", and the number of files."""
  files = tf.gfile.Glob(os.path.join(folder, "events.out.tfevents.*"))
  return [value.simple_value for file in files for event in tf.train.summary_iterator(file)
          for value in event.summary.value if value.tag == "loss"], len(files)


def main(argv):
  """Serves as the ps, or trains and writes summaries."""
  if len(argv) == 1:  # all tasks on this machine
    hosts = "--hosts=" + ",".join(find_free_addresses(3))
    with tempfile.TemporaryDirectory() as folder:
      return run_together(lambda: app.run(main), *[[job, index, folder, hosts] for job, index in [
        ("worker", "0"), ("worker", "1"), ("ps", "0")]])
  job, index, log_dir = argv[1:]
  tf.disable_v2_behavior()
  ps, *workers = flags.FLAGS.hosts
  cluster, index = {"ps": [ps], "worker": workers}, int(index)
  server = tf1ps.Server(cluster, job, index)
  if job == "ps":
    server.join()
    return

  with tf.device(tf1ps.replica_device_setter(
      cluster=cluster, worker_device="/job:worker/task:%d" % index)):
    global_step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.zeros_initializer())
    loss = tf.square(w - 2.0) / 2.0
    train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step)
    summary = tf.summary.scalar("loss", loss)

  folder = os.path.join(log_dir, "worker_%d" % index)
  writer = tf.summary.FileWriter(folder)  # not in the graph: a file on this worker's disk
  seen = []
  with tf1ps.MonitoredTrainingSession(server.target, index == 0) as session:
    for _ in range(20):
      _, value, text, step = session.run([train_op, loss, summary, global_step])
      writer.add_summary(text, step)
      seen.append(float(value))
  writer.close()
  read, count = losses_in(folder)
  print("worker %d: %d losses in %d events file, as seen while training: %s" % (
    index, len(read), count, read == seen))


if __name__ == "__main__":
  app.run(main)
