"""What the tests of state run as processes: writers of control records, and their clients."""
from __future__ import annotations

import signal
import threading
import time

import tensorflow.compat.v1 as tf

from tests import harness
from tests.cluster_tasks import say
from tf1ps.cluster.description import Cluster
from tf1ps.state import control, heartbeat


def start_server(jobs, job, index):
  """Starts a stock server; returns (target, its task, the task that keeps the records)."""
  server = tf.train.Server(tf.train.ClusterSpec(jobs), job, index)
  cluster = Cluster({name: dict(enumerate(tasks)) for name, tasks in jobs.items()}, job, index)
  return server.target, cluster.task, cluster.control_task


def write(jobs, index, threads, count):
  """A worker, many of whose threads write so many records each, with a table of their own."""
  connection = start_server(jobs, "worker", index)

  def write_some(thread):
    table = control.ControlTable(*connection, harness.LIMIT)
    for i in range(count):
      table.put({"%d/%d/%d" % (index, thread, i): {"i": i}})
    table.close()

  writers = [threading.Thread(target=write_some, args=(n,)) for n in range(threads)]
  for writer in writers:
    writer.start()
  for writer in writers:
    writer.join()
  say("written")


def lose_control_task(jobs, ps_pid):
  """A worker whose control task stands still, goes on, dies and comes back; says how calls end."""
  table = control.ControlTable(*start_server(jobs, "worker", 0))

  def call(what, function, *args):
    # As if it were told so: little patience with a control task that is not there, much with one
    # that is.
    table._limit = 0.8 if what.startswith(("stopped", "killed")) else harness.LIMIT
    began = time.monotonic()
    try:
      result = function(*args)
      result = "ok" if result is None else sorted(result)
    except control.ControlError as error:
      result = "ControlError: %s" % error
    say("call: %s: %.2f: %s" % (what, time.monotonic() - began, result))
    return result == "ok"

  call("first", table.put, {"a": {}})
  harness.signal_process(ps_pid, signal.SIGSTOP)
  call("stopped", table.put, {"b": {}})
  call("stopped again", table.read)
  harness.signal_process(ps_pid, signal.SIGCONT)
  call("goes on", table.put, {"c": {}})
  call("records", table.read)
  harness.signal_process(ps_pid, signal.SIGKILL)
  call("killed", table.put, {"d": {}})
  call("killed again", table.read)
  harness.wait_until(lambda: call("later", table.put, {"e": {}}))
  call("records of the next", table.read)
  table.close()


def member(jobs, index, heartbeat_timeout, container=""):
  """A worker that beats, and says whenever it knows other members or finds others lost."""
  target, own, control_task = start_server(jobs, "worker", index)
  table = control.ControlTable(target, own, control_task)
  sender = heartbeat.Heartbeat(table, own, "worker", container, heartbeat_timeout)
  sender.start()
  said = None
  while True:
    members = sender.members()
    silence = sender.silence
    line = "known %s lost %s%s" % (
        [m.index for m in members], [m.index for m in members if sender.is_lost(m)],
        ", no answer" if silence is not None and silence > heartbeat_timeout / 3 else "")
    if line != said:
      say(line)
      said = line
    threading.Event().wait(0.02)
