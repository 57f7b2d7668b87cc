"""A barrier of n shared queues: no task goes on before all tasks have come.

Example E12.
Mechanism: each of n tasks owns a queue on the ps. A task that comes puts a token into the queue of
every other task, and takes n - 1 tokens out of its own. By hand, this wait is a `dequeue`, which
has no limit if a task is missing. With a timeout, a `dequeue` may lose a token.
What to look for: first all three tasks come, and all learn the same order of arrival, by the clock
of the ps. The order depends on the machine. Then worker 2 leaves. The other two wait for it again,
and their errors name it.
Toolkit: tf1ps.state.Barrier (docs/queues.md#a-barrier).

    $ python examples/programs/barrier_of_queues.py
    all 3 passed, in the order [...]
    all have seen the same order: True
    barrier epoch: 2 of 3 arrived within 4 s; missing: /job:worker/task:2
    all 3 passed, in the order [...]
    all have seen the same order: True
    barrier epoch: 2 of 3 arrived within 4 s; missing: /job:worker/task:2
    all 3 passed, in the order [...]
    all have seen the same order: True

That starts all tasks on this machine. By hand, each in a shell of its own and in any order:

    1$ python examples/programs/barrier_of_queues.py worker 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223 127.0.0.1:2224
    2$ python examples/programs/barrier_of_queues.py worker 1 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223 127.0.0.1:2224
    3$ python examples/programs/barrier_of_queues.py worker 2 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223 127.0.0.1:2224
    4$ python examples/programs/barrier_of_queues.py ps 0 127.0.0.1:2221 127.0.0.1:2222 \
        127.0.0.1:2223 127.0.0.1:2224
"""

import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tf1ps.launch import find_free_addresses, run_together
from tf1ps.state import Barrier, BarrierTimeout, DoneQueues


def main():
  """Serves until all workers are done, or meets the others as a worker."""
  if len(sys.argv) == 1:  # all tasks on this machine
    hosts = find_free_addresses(4)
    return run_together(main, *[["worker", str(index)] + hosts for index in range(3)],
                        ["ps", "0"] + hosts)
  job, index, hosts = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
  tf.disable_v2_behavior()
  cluster = {"ps": hosts[:1], "worker": hosts[1:]}
  tasks = len(cluster["worker"])
  server = tf1ps.Server(cluster, job, index)
  done = DoneQueues(tasks)
  # Without filters a session waits for all tasks by itself, and names none of them.
  config = tf.ConfigProto(device_filters=["/job:ps", "/job:%s/task:%d" % (job, index)])
  if job == "ps":
    with tf.Session(server.target, config=config) as session:
      done.wait(session, timeout=100.0)
    return

  barrier = Barrier("epoch", num_tasks=tasks, task_index=index)
  with tf.device("/job:ps/task:0"):  # each worker writes here the order that it has learnt
    orders = [tf.get_variable("order_%d" % i, [tasks], tf.int32) for i in range(tasks)]
  order_in = tf.placeholder(tf.int32, [tasks])
  leave_order = tf.assign(orders[index], order_in)
  with tf.Session(server.target, config=config) as session:
    order = barrier.wait(session, timeout=60.0)
    print("all %d passed, in the order %s" % (len(order), [int(i) for i in order]))
    session.run(leave_order, {order_in: order})
    barrier.wait(session, timeout=60.0)
    print("all have seen the same order:",
          all(list(other) == list(order) for other in session.run(orders)), flush=True)
    if index < tasks - 1:
      try:
        barrier.wait(session, timeout=4.0)
      except BarrierTimeout as error:
        print(error)
    done.report(session, index)


if __name__ == "__main__":
  main()
