"""What the tests of resets and guards run as processes: callers of queues, and servers of ours."""
from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

import tf1ps
from tests.cluster_tasks import say, stay
from tf1ps.state import guard as guard_lib
from tf1ps.state import queue_errors, queues, reset


def make_queue(container, name="q"):
  """The queue of these tests, in the default graph."""
  return queues.FIFOQueue(
    20, tf.int32, [], shared_name=name, device="/job:ps/task:0", container=container)


def use(target, container):
  """Puts and gets for ever; opens a new session when told of a reset, and says both."""
  with tf.Graph().as_default():
    queue = make_queue(container)
    while True:
      with tf.Session(target) as session:
        _use_until_reset(queue, session)


def _use_until_reset(queue, session):
  works = False
  while True:
    try:
      # Without a timeout: the first run of a session took 4 s at load 40, and a call with a timeout
      # ends with QueueUnanswered after 10 s.
      queue.put(session, 1)
      queue.get(session)
    except queue_errors.QueueReset as error:
      say("reset:", str(error).splitlines()[0])
      return
    if not works:
      say("works")
      works = True


def block(target, container, n):
  """Waits in TensorFlow's own dequeue_many on a queue that has fewer; says how that ends."""
  with tf.Graph().as_default():
    with tf.container(container), tf.device("/job:ps/task:0"):
      queue = tf.queue.FIFOQueue(20, tf.int32, [], shared_name="stock")
    with tf.Session(target) as session:
      session.run(queue.enqueue_many([list(range(n - 1))]))
      say("blocks")
      try:
        say("got", session.run(queue.dequeue_many(n)))
      except tf.errors.OpError as error:
        say("told:", type(error).__name__)


def reset_own(jobs, names):
  """A worker of ours that resets by its own server's target; says what it cleared."""
  server = tf1ps.Server(jobs, "worker", 0)
  say(
    "cleared", [[r.task.name, r.containers] for r in reset.reset_containers(server.target, names)]
  )
  stay()


def reset_stock(target, names, timeout):
  """TensorFlow's own reset, with a limit; says how it ends."""
  config = tf.ConfigProto(operation_timeout_in_ms=int(1000 * timeout))
  try:
    tf.Session.reset(target, names, config)
    say("ended: ok")
  except tf.errors.OpError as error:
    say("ended:", type(error).__name__)


def make_guard(container, name, device="/job:ps/task:0"):
  """A guard beside a queue, in the default graph."""
  with tf.device(device), tf.container(container):
    op = tf.queue.FIFOQueue(5, tf.int32, [], shared_name=name or None).queue_ref.op
  return guard_lib.Guard(op, guard_lib.Label.of(op, "thing", name, {"size": 5}))


def block_in_step(jobs, how):
  """A worker that stands still in a step, for ever, and so holds the lock of jobs/a's "held".

  Args:
    jobs: a ps and this worker.
    how: "py_func": in Python, through its own server; "ps": on the ps, through the ps's master.
  """
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)

  def stand_still():
    say("inside")
    stay()
    return np.int32(0)

  with tf.Graph().as_default() as graph:
    guard = make_guard("jobs/a", "held")
    with tf.device("/job:ps/task:0"), tf.container("jobs/b"):
      entered, never = [tf.queue.FIFOQueue(5, tf.int32, [], shared_name=name)
                        for name in ("entered", "never")]

    def step():
      if how == "ps":
        with tf.control_dependencies([entered.enqueue(1)]):
          return [never.dequeue()]
      with graph.colocate_with(None, ignore_existing=True), tf.device("/job:worker/task:0"):
        return [tf.py_func(stand_still, [], tf.int32)]

    results = guard.step(step)
    with tf.Session("grpc://" + jobs["ps"][0] if how == "ps" else server.target) as session:
      session.run(results)
