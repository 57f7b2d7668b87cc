"""What the tests of sessions run as processes: clients of a ps that dies, and blocked runs."""
from __future__ import annotations

import os
import signal
import sys
import threading
import time

import tensorflow.compat.v1 as tf

from tests.cluster_tasks import say
from tf1ps.cluster import session as session_lib

KINDS = {"stock": tf.Session, "ours": session_lib.BoundedSession}
PATIENCE = 1.5  # seconds after which a call that does not return counts as hanging


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
  session = KINDS[kind](server.target, graph, **({} if kind == "stock" else {"close_limit": 0.5}))
  session.run(initialise)
  say("counted", session.run(count))
  os.kill(ps_pid, number)
  if kind == "ours" and number == signal.SIGSTOP:
    threading.Timer(0.3, session.abort, [lambda: KeyError("gone")]).start()
  say("run %s after %.1f s" % end_of(lambda: session.run(count)))
  say("close %s after %.1f s" % end_of(session.close))
  say("run %s after %.1f s" % end_of(lambda: session.run(count)))


def block(kind):
  """Blocks the main thread in the dequeue of an empty queue, and says how that ends."""
  with tf.Graph().as_default():
    queue, begun = tf.FIFOQueue(10, tf.int32), tf.FIFOQueue(10, tf.int32)
    take, put, begin = queue.dequeue(), queue.enqueue(7), begun.enqueue(0)
    has_begun, size = begun.dequeue(), queue.size()
    one, two = tf.constant(1), tf.constant(2)
    session = KINDS[kind]()

  def tell():
    session.run(has_begun)
    say("blocked")

  threading.Thread(target=tell, daemon=True).start()
  try:
    session.run([begin, take])
  except KeyboardInterrupt:
    say("interrupted")
  # The dequeue goes on; the session can be used meanwhile, and its late result meets nobody.
  say("then", session.run(two), session.run(one))
  session.run(put)
  say("then", *[session.run(two) for _ in range(20)])
  while session.run(size):
    pass
  session.run(put)
  say("taken", session.run(take))
  session.close()


def exit_with_abandoned_session(kind, jobs, ps_pid):
  """A worker that leaves by an ordinary exit, with sessions that are open, broken and blocked."""
  server = tf.train.Server(tf.train.ClusterSpec(jobs), "worker", 0)
  graph, initialise, count = counter_on_ps()
  with graph.as_default(), tf.device("/job:ps/task:0"):
    take = tf.FIFOQueue(1, tf.int32, shared_name="empty").dequeue()
  sessions = [KINDS[kind](server.target, graph) for _ in range(3)]
  sessions[0].run(initialise)
  for session in sessions:
    say("counted", session.run(count))
  for session in (sessions[0], sessions[0], KINDS[kind](graph=tf.Graph())):
    threading.Thread(target=session.run, args=(take if session is sessions[0] else [],),
                     daemon=True).start()
  os.kill(ps_pid, signal.SIGKILL)
  say(end_of(lambda: sessions[1].run(count), 1.0)[0])
  end_of(sessions[2].close, 0.1)
  sys.exit(7)
