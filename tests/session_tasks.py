"""What the tests of sessions run as processes: clients of a ps that dies, and blocked runs."""
from __future__ import annotations

import os
import signal
import sys
import threading
import time

import tensorflow.compat.v1 as tf

from tests import harness
from tests.cluster_tasks import say
from tf1ps.cluster import session as session_lib

KINDS = {"stock": tf.Session, "ours": session_lib.BoundedSession}
PATIENCE = 1.0  # seconds after which a call that does not return counts as hanging
LONG = harness.LIMIT  # the same, for a call that should return
IS_1 = tf.__version__.startswith("1.")


def end_of(function, patience=PATIENCE):
  """Calls the function in a thread; returns (how it ended within the patience, seconds)."""
  ends = []

  def work():
    try:
      function()
      ends.append("returned")
    except BaseException as error:
      ends.append(type(error).__name__)

  began = time.monotonic()
  thread = threading.Thread(target=work, daemon=True)
  thread.start()
  thread.join(patience)
  return (ends or ["hangs"])[0], time.monotonic() - began


def counter_on_ps():
  """A graph with a counter on ps 0; returns (graph, initialiser, the op that counts)."""
  graph = tf.Graph()
  with graph.as_default(), tf.device("/job:ps/task:0"):
    counter = tf.get_variable("counter", initializer=0, use_resource=True)
    return graph, counter.initializer, counter.assign_add(1)


def lose_ps(kind, jobs, ps_pid, number):
  """A worker that signals its ps, and then runs, leaves and closes."""
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  graph, initialise, count = counter_on_ps()
  # On 2.x a run tells that the ps is gone, and the close does not wait for its limit.
  close_limit = 1.0 if IS_1 or number == signal.SIGSTOP else 10 * LONG
  session = KINDS[kind](
    server.target, graph, **({} if kind == "stock" else {"close_limit": close_limit}))
  session.run(initialise)
  say("counted", session.run(count))
  harness.signal_process(ps_pid, number)
  if kind == "ours" and number == signal.SIGSTOP:
    threading.Timer(0.3, session.abort, [lambda: KeyError("gone")]).start()
  # Those that hang: every run on a ps that stands still, on 1.15 also on a dead one; stock's close.
  hangs = IS_1 or number == signal.SIGSTOP
  patience = PATIENCE if kind == "stock" or number == signal.SIGKILL and IS_1 else LONG
  say("ended:", *end_of(lambda: session.run(count), patience if hangs else LONG))
  say("ended:", *end_of(session.close, PATIENCE if kind == "stock" else LONG))
  say("ended:", *end_of(lambda: session.run(count), PATIENCE if kind == "stock" else LONG))


class EmptyQueue:
  """A session of a kind, a queue with nothing in it, and whoever waits for an element."""

  def __init__(self, kind):
    with tf.Graph().as_default():
      queue, begun = tf.FIFOQueue(10, tf.int32), tf.FIFOQueue(10, tf.int32)
      self.take, self.put, self.size = queue.dequeue(), queue.enqueue(7), queue.size()
      self._take, self._has_begun = [begun.enqueue(0), self.take], begun.dequeue()
      self.one, self.two = tf.constant(1), tf.constant(2)
      self.session = KINDS[kind]()

  def wait(self):
    """Waits for an element, in C++; says "blocked" when it does."""
    threading.Thread(target=self._tell, daemon=True).start()
    self.session.run(self._take)

  def _tell(self):
    self.session.run(self._has_begun)
    say("blocked")


def block(kind):
  """Blocks the main thread in the dequeue of an empty queue, and says how that ends."""
  queue = EmptyQueue(kind)
  run = queue.session.run
  try:
    queue.wait()
  except KeyboardInterrupt:
    say("interrupted")
  # The dequeue goes on; the session can be used meanwhile, and its late result meets nobody.
  say("then", run(queue.two), run(queue.one))
  run(queue.put)
  say("then", *[run(queue.two) for _ in range(20)])
  while run(queue.size):
    pass
  run(queue.put)
  say("taken", run(queue.take))
  queue.session.close()


def exit_with_abandoned_sessions(kind, jobs, ps_pid):
  """A worker that leaves by an ordinary exit, with sessions that are open, broken and blocked."""
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  graph, initialise, count = counter_on_ps()
  with graph.as_default(), tf.device("/job:ps/task:0"):
    take = tf.FIFOQueue(1, tf.int32, shared_name="empty").dequeue()
  blocked, broken, closing, left = [KINDS[kind](server.target, graph) for _ in range(4)]
  left.run(initialise)
  for session in (blocked, broken, closing, left):
    session.run(count)
  threading.Thread(target=blocked.run, args=(take,), daemon=True).start()
  harness.signal_process(ps_pid, signal.SIGKILL)
  end_of(lambda: broken.run(count), 0.5)
  end_of(closing.close, 0.1)
  say("leaving")
  sys.exit(7)


def count_on_after_a_signal(logdir):
  """A Supervisor's program that gets SIGTERM just before a run, and runs on without a look."""
  import tf1ps
  with tf.Graph().as_default():
    step = tf.train.get_or_create_global_step()
    count = tf.assign_add(step, 1)
    supervisor = tf1ps.Supervisor(logdir=logdir, save_model_secs=600)
    session = supervisor.prepare_or_wait_for_session()
    say("counted", session.run(count), supervisor.should_stop(), session.should_stop())
    os.kill(os.getpid(), signal.SIGTERM)
    harness.wait_until(lambda: session._monitored.lifecycle.signum)
    say("counted", session.run(count), session.should_stop())
    session.run(count)
    say("ran on")
