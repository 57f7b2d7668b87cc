"""What the tests of plain sessions run as processes: programs with nothing but these."""
from __future__ import annotations

import os
import sys
import threading

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
  if job == "ps" and how == "a ps that sleeps":
    threading.Event().wait()
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


def _queue_and_model():
  """A queue on the ps, and a variable and a table there that a run leaves behind."""
  with tf.device("/job:ps/task:0"):
    done = tf.queue.FIFOQueue(3, tf.int32, shared_name="done")
    table = tf.raw_ops.MutableHashTableV2(
      key_dtype=tf.int64, value_dtype=tf.int64, shared_name="seen")
    with tf.variable_scope("", use_resource=True):
      step = tf.train.get_or_create_global_step()
  key = tf.constant([1], tf.int64)
  insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=key, values=key)
  return done, step, insert, tf.raw_ops.LookupTableSizeV2(table_handle=table)


def await_queue(jobs, kind, may_end):
  """A ps whose own program takes three elements out of a queue, where others call join."""
  server = tf1ps.Server(jobs, "ps", 0)
  with tf.Graph().as_default():
    take = _queue_and_model()[0].dequeue()
    session = {"stock": tf.Session, "ours": Session}[kind](server.target)
    say("waits")
    for _ in range(3):
      say("took", session.run(take))
    say("all taken")
  if kind == "ours":
    end_open_sessions()  # as at the end of a program: a forked process leaves it out
  else:  # without tf1ps, its end may come before the answer to the last element
    harness.wait_until(lambda: os.path.exists(may_end))
    os._exit(0)  # the close of a stock session waits for the worker, which has left


def report_to_queue(jobs, elements):
  """A chief that puts elements into that queue; it leaves a table with one key."""
  server = tf1ps.Server(jobs, "worker", 0)
  with tf.Graph().as_default():
    done, step, insert, size = _queue_and_model()
    element = tf.placeholder(tf.int32, [])
    put, up = done.enqueue(element), step.assign_add(1)
    with tf1ps.MonitoredTrainingSession(server.target) as session:
      say("found", session.run(step), session.run(size))
      session.run([insert, up])
      for value in elements:
        session.run(put, {element: value})
      if elements == [1]:
        say("stays")
        harness.wait_until(lambda: False)
