"""One job of two tasks, a server each: the smallest cluster.

Example N1.
Mechanism: `{"local": [a, b]}` has neither ps nor worker. A job is a name for a list of tasks, and
nothing more. "ps" and "worker" are names that device setters know. Task 0 is the client here: it
computes one part of a sum on itself and one part on task 1.
Task 1 only serves. The join() of TensorFlow's server never returns, so task 1 waits for task 0's
report instead.
Toolkit: bare TensorFlow, and tf1ps.state.DoneQueues for the end (docs/queues.md#a-barrier).

    $ python examples/notes/one_job_two_tasks.py
    6.0 on /job:local/task:0
    15.0 on /job:local/task:1
    together 21.0
    1 of 1 clients done

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/notes/one_job_two_tasks.py 0 127.0.0.1:2221 127.0.0.1:2222
    2$ python examples/notes/one_job_two_tasks.py 1 127.0.0.1:2221 127.0.0.1:2222
"""

import sys

import tensorflow.compat.v1 as tf

from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import DoneQueues


def main():
  """Serves, or computes on both tasks."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(2)
    return run_together(main, ["0"] + hosts, ["1"] + hosts)
  index, hosts = int(sys.argv[1]), sys.argv[2:]
  tf.disable_v2_behavior()
  cluster = tf.train.ClusterSpec({"local": hosts})
  server = tf.train.Server(cluster, job_name="local", task_index=index)
  done = DoneQueues(1, ["task 0"], places=["/job:local/task:1"], container="")
  if index == 1:
    own = tf.ConfigProto(device_filters=["/job:local/task:1"])
    with tf.Session(server.target, config=own) as session:
      status = done.wait(session, timeout=100.0, linger=1.5)
    print("%d of 1 clients done" % len(status.done))
    return

  parts = []
  for task in range(2):
    with tf.device("/job:local/task:%d" % task):
      numbers = tf.placeholder(tf.float32, [3])
      parts.append((numbers, tf.reduce_sum(numbers)))
  with tf.device("/job:local/task:0"):
    total = tf.add_n([part for _, part in parts])
  feed = {parts[0][0]: [1, 2, 3], parts[1][0]: [4, 5, 6]}
  with tf.Session(server.target) as session:  # waits until task 1 is there
    *sums, together = session.run([part for _, part in parts] + [total], feed)
    for value, (_, part) in zip(sums, parts):
      print("%s on %s" % (float(value), part.device))
    print("together", float(together))
    done.report(session, 0)


if __name__ == "__main__":
  main()
