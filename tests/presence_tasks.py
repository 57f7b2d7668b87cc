"""What the tests of plain sessions run as processes: programs with nothing but these."""
from __future__ import annotations

import sys

import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness
from tests.cluster_tasks import say
from tf1ps.session import Session, end_open_sessions, follow_servers


def train_plainly(jobs, job, index, how):
  """A task of a job whose programs know nothing of a run."""
  follow_servers()
  error = None
  try:
    with tf.Graph().as_default():
      _run_program(jobs, job, index, how)
  except (SystemExit, ValueError) as ended:
    error = ended
  try:
    end_open_sessions(error)
  except (tf1ps.Error, SystemExit) as problem:
    say(problem)
    return getattr(problem, "code", 1)
  return 0 if error is None or isinstance(error, SystemExit) else 1


def _run_program(jobs, job, index, how):
  server = tf1ps.Server(jobs, job, index, heartbeat_timeout=5.0)
  with tf.device("/job:ps/task:0"):
    done = tf.queue.FIFOQueue(2, tf.int32, shared_name="done")
    count = tf.get_variable("count", initializer=0.0, use_resource=True)
    up, is_there = count.assign_add(1.0).op, tf.is_variable_initialized(count)
  one, take = done.enqueue(1), done.dequeue()
  if job == "ps" and how in ("a worker without a session", "nothing"):
    server.join()
  if job == "ps":
    session = Session(server.target)
    for _ in jobs["worker"]:
      session.run(take)
    return
  if index == 1 and how == "a worker without a session":
    return
  if how == "nothing":
    say("leaves")
    return
  session = Session(server.target)
  if index == 0:
    session.run(count.initializer)
  else:
    harness.wait_until(lambda: session.run(is_there))
  for _ in range(50):
    session.run(up)
  if index == 1 and how == "a failure":
    raise ValueError("of the program")
  session.run(one)
  if index == 0 and how == "a done queue":
    harness.wait_until(lambda: session.run(count) == 100.0)
  say("saved", session.run(count))
  sys.exit(0)
