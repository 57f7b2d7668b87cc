"""Control records: a small table on a server, that clients share without initialising anything.

Every task keeps a mutable hash table in the container `containers.CONTROL`, created by whoever uses
it first. A record is a name and a JSON object; writing replaces the record in one step. Each is
stamped with the clock of the server that keeps it, so that its age needs no common clock:

1. `put` writes records, `read` returns all, with their ages.
2. Every call has a limit. After one that failed, the next opens a new session.

TensorFlow has no table from string to string; the key is the first eight bytes of the name's
SHA-256, and the name travels in the value.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Dict, NamedTuple

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import bounded, probe
from tf1ps.cluster import session as session_lib
from tf1ps.compat import error_text, refused_runs
from tf1ps.state import containers

CLUSTER = "cluster"  # the name of the record of the cluster that a task was started with


class ControlError(RuntimeError):
  """The task that keeps the records did not answer within the limit."""


class Record(NamedTuple):
  """A control record."""

  value: dict  # the JSON object
  age: float  # seconds since it was written, by the clock of the server that keeps it


class ControlTable:
  """The control records that one task keeps."""

  def __init__(self, target: str, own_task, keeper, limit: float = 5.0):
    """Prepares access; no call is made yet.

    Args:
      target: the session target of this task's server.
      own_task: the `spec.Task` of this task.
      keeper: the `spec.Task` that keeps the records.
      limit: seconds for one call.
    """
    self._target = target
    self._keeper = keeper
    self._limit = limit
    self._config = tf.ConfigProto(device_filters=sorted({own_task.name, keeper.name}))
    self._ops = _build(keeper.name)
    self._session = None
    self._lock = threading.Lock()

  @property
  def keeper(self):
    return self._keeper

  def put(self, records: Dict[str, dict]) -> None:
    """Writes records; raises ControlError."""
    self._run(self._ops.insert, records)

  def read(self) -> Dict[str, Record]:
    """Returns all records by name; raises ControlError."""
    return _decode(*self._run(self._ops.export))

  def exchange(self, records: Dict[str, dict]) -> Dict[str, Record]:
    """Writes records and returns all, in one run; raises ControlError."""
    return _decode(*self._run(self._ops.insert_then_export, records))

  def close(self) -> None:
    """Closes the session, within a limit."""
    with self._lock:
      self._drop()

  def _run(self, fetches, records=None):
    feed = None if records is None else _encode(self._ops, records)
    options = tf.RunOptions(timeout_in_ms=int(1000 * self._limit))
    with self._lock:
      try:
        if self._session is None:
          # A session on a task that is not up would wait for it, and its thread with it.
          seen = probe.probe(self._keeper, timeout=min(2.0, self._limit))
          if not seen.is_up:
            raise ControlError("%s at %s keeps the control records and is not there: %s" % (
              self._keeper.name, self._keeper.address, seen.detail))
          self._session = session_lib.BoundedSession(
            self._target, self._ops.graph, self._config, close_limit=1.0)
        return bounded.call_within(
          self._limit + 0.5, "asking %s for the control records" % self._keeper.name,
          refused_runs.run, tf.Session.run, self._session, fetches, feed, options)
      except ControlError:
        raise
      except (tf.errors.OpError, bounded.LimitExceeded, RuntimeError) as error:
        self._drop(broken=True)
        raise ControlError("%s at %s does not answer for the control records: %s" % (
          self._keeper.name, self._keeper.address, error_text.first_line(error))) from error

  def _drop(self, broken=False):
    session, self._session = self._session, None
    if session is None:
      return
    if broken:
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
    session.close()


class _Ops(NamedTuple):
  graph: tf.Graph
  keys: tf.Tensor  # int64 [records], to feed
  values: tf.Tensor  # string [records], to feed
  insert: tf.Operation
  export: tuple  # the stamped values of all records, string [all]; the keeper's clock after that
  insert_then_export: tuple  # the same, after the insertion


def _build(device: str) -> _Ops:
  graph = tf.Graph()
  with graph.as_default(), tf.device(device):
    table = tf.raw_ops.MutableHashTableV2(
      key_dtype=tf.int64, value_dtype=tf.string, container=containers.CONTROL,
      shared_name="records")
    keys = tf.placeholder(tf.int64, [None])
    values = tf.placeholder(tf.string, [None])
    stamp = tf.fill(tf.shape(values), tf.as_string(tf.timestamp(), precision=3))
    stamped = tf.string_join([stamp, values], separator=" ")
    insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=keys, values=stamped)
    export = _export(table)
    with tf.control_dependencies([insert]):
      insert_then_export = _export(table)
  return _Ops(graph, keys, values, insert, export, insert_then_export)


def _export(table):
  _, values = tf.raw_ops.LookupTableExportV2(
    table_handle=table, Tkeys=tf.int64, Tvalues=tf.string)
  # The clock is read after the records, or an age could come out below zero.
  with tf.control_dependencies([values]):
    return values, tf.timestamp()


def _encode(ops: _Ops, records: Dict[str, dict]):
  names = sorted(records)
  keys = [int.from_bytes(hashlib.sha256(n.encode("utf-8")).digest()[:8], "big", signed=True)
          for n in names]
  values = [json.dumps([n, records[n]], sort_keys=True) for n in names]
  return {ops.keys: np.array(keys, np.int64), ops.values: values}


def _decode(values, now: float) -> Dict[str, Record]:
  records = {}
  for text in values:
    stamp, data = text.decode("utf-8").split(" ", 1)
    name, value = json.loads(data)
    records[name] = Record(value, max(0.0, float(now) - float(stamp)))
  return records
