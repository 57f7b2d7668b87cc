"""A ps that ends when its workers are done, by a queue on which they report.

Example E3.
Mechanism: `join()` of TensorFlow's server never returns, so every job leaves its ps behind. The
usual cure is a queue on the ps. Each worker puts a token into it, and the ps takes as many tokens
as there are workers. By hand, three details go wrong:

1. A reset of a container also clears its queues. This queue needs a container that no reset clears.
2. A worker that reports twice must count once.
3. The ps must stay for a moment after the last token. The session of the last worker is still open,
   and TensorFlow's close() hangs without its ps.

Toolkit: tf1ps.state.DoneQueues does all three (docs/queues.md#a-barrier). With
tf1ps.MonitoredTrainingSession you need no such queue: `tf1ps.Server.join` ends the ps when the
chief has ended.

    $ python examples/programs/ps_that_ends.py
    worker 0 has made 10 steps, and reports
    worker 1 has made 20 steps, and reports
    ps 0: 2 of 2 workers done

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/programs/ps_that_ends.py worker 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    2$ python examples/programs/ps_that_ends.py worker 1 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223
    3$ python examples/programs/ps_that_ends.py ps 0 127.0.0.1:2221 127.0.0.1:2222 127.0.0.1:2223
"""

import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import DoneQueues


def main():
  """Serves until two workers are done, or works."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(3)
    return run_together(main, ["worker", "0"] + hosts, ["worker", "1"] + hosts,
                        ["ps", "0"] + hosts)
  job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
  tf.disable_v2_behavior()
  server = tf1ps.Server({"ps": hosts[:1], "worker": hosts[1:]}, job, index)
  done = DoneQueues(num_workers=2)
  # A session without filters waits until all tasks of the cluster are there.
  filters = ["/job:ps", "/job:%s/task:%d" % (job, index)]
  config = tf.ConfigProto(device_filters=filters)
  if job == "ps":
    with tf.Session(server.target, config=config) as session:
      print("ps %d: %s" % (index, done.wait(session, timeout=120.0)))
    return
  with tf.device("/job:ps/task:0"):
    count = tf.get_variable("count_%d" % index, [], initializer=tf.zeros_initializer())
  step = tf.assign_add(count, 1.0)
  with tf.Session(server.target, config=config) as session:
    session.run(count.initializer)
    for _ in range(10 * (1 + index)):
      last = session.run(step)
    print("worker %d has made %d steps, and reports" % (index, last))
    done.report(session, index)


if __name__ == "__main__":
  main()
