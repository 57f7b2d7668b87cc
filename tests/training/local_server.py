"""A job whose chief is this process, for tests that need its records and no other process.

There is no ps: the chief keeps the variables and the records. Of the other two workers there is
only what a test has them say.
"""
from __future__ import annotations

import atexit

import tf1ps
from tests import harness
from tf1ps.cluster import server as server_lib
from tf1ps.state import control, heartbeat

_servers = []
_records = []  # of the server


def record(container, heartbeat_timeout=harness.LIMIT):
  """The record of this process's server, for a job in a container of its own.

  Nobody is lost who has spoken once, unless a test gives a shorter limit.
  """
  if not _servers:  # a process has one, and cannot stop it
    _servers.append(tf1ps.Server(
      {"worker": harness.addresses(3)}, job_name="worker", task_index=0))
    atexit.register(_servers.clear)  # 1.15's destructor needs what the end of Python takes away
    _records.append(_servers[0].record)
  # Other tests of this process know of no server: see conftest.py.
  server_lib._records.setdefault(_servers[0].target, _records[0])
  return _records[0]._replace(container=container, heartbeat_timeout=heartbeat_timeout)


def server():
  """The server of this process, after `record`."""
  return _servers[0]


def table(of):
  """The control records that the chief keeps."""
  return control.ControlTable(
    of.target, of.cluster.task, of.cluster.control_task, harness.LIMIT)


class Worker(object):
  """One of the other workers, as far as its heartbeat tells of it."""

  def __init__(self, of, index):
    self._heartbeat = heartbeat.Heartbeat(
      table(of), of.cluster.find("worker", index), "worker", of.container, of.heartbeat_timeout)

  def say(self, **fields):
    """Beats once, with these fields: run, state, step, global_step, examples, reason."""
    self._heartbeat.set(**fields)
    self._heartbeat.beat()
