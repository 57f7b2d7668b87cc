"""Control records: a small table on a server that clients share without initialisation.

Every task keeps a mutable hash table in the container `containers.CONTROL`; its first use creates
it. A record is a name and a JSON object, and a write replaces it atomically. The control task is
the task that keeps the table. Its clock stamps each record. For a record that a reader has seen
before, the age is the time for which the stamp has not changed, by the reader's monotonic clock.
The control task's clock, which may jump, counts only for records that were written before the
reader first read the table:

1. `put` writes records, `read` returns all records with their ages.
2. `change` changes one record by compare-and-swap, for several clients.
3. Every call has a limit. After a failed call the next call opens a new session. If the control
   task was restarted, the call itself opens a new session immediately.

TensorFlow has no table from string to string; the key is the first eight bytes of the name's
SHA-256, and the name travels in the value.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import threading
import time
from typing import Callable, Dict, NamedTuple, Optional

import numpy as np
import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  BoundedSession,
  LimitExceeded,
  ServerRecord,
  call_within,
  make_small_config,
  probe_task,
)
from tf1ps.compat import TIMING, Error, error_line, retry_refused_run
from tf1ps.state import containers

CLUSTER_RECORD = "cluster"  # the name of the record of the cluster that a task was started with
# The name of the record of a ps whose program has sessions of its own: {} or {"has_sessions": true}
PROGRAM_RECORD = "program"
TABLE = "records"  # the shared name of the table
_TRIES = 1000  # tries of a change, if another client is faster each time


class ControlError(Error, RuntimeError):
  """The task that keeps the records did not answer within the limit."""


class ControlRecord(NamedTuple):
  """A control record."""

  value: dict  # the JSON object
  age: float  # seconds since it was written


def parse(values, now_there: float) -> Dict[str, ControlRecord]:
  """Returns the records in a table's values, for a first look at the control task's time."""
  records = {}
  for text in values:
    stamp, data = text.decode("utf-8").split(" ", 1)
    name, value = json.loads(data)
    records[name] = ControlRecord(value, max(0.0, float(now_there) - float(stamp)))
  return records


class ControlTable:
  """The control records that a task keeps."""

  def __init__(self, target: str, own_task, control_task, limit: float = 5.0):
    """Prepares access; no call is made yet.

    Args:
      target: the session target of this task's server.
      own_task: the `Task` of this process.
      control_task: the `Task` that keeps the records.
      limit: seconds for each call.
    """
    self._target, self._control_task, self._limit = target, control_task, limit
    self._config = make_small_config({own_task.name, control_task.name})
    self._ops = _build(control_task.name)
    self._session = None
    self._lock = threading.Lock()
    self._written: Dict[str, tuple] = {}  # {name: (stamp, when, by this process's monotonic clock)}
    self._last_look = -math.inf  # when the last run that read all records began

  @property
  def control_task(self):
    return self._control_task

  def put(self, records: Dict[str, dict]) -> None:
    """Writes records; raises ControlError."""
    self._run(self._ops.insert, records)

  def read(self) -> Dict[str, ControlRecord]:
    """Returns all records by name; raises ControlError."""
    return self._read(self._ops.export)

  def exchange(self, records: Dict[str, dict]) -> Dict[str, ControlRecord]:
    """Writes records and returns all records, in one run; raises ControlError."""
    return self._read(self._ops.insert_then_export, records)

  def change(self, name: str, function: Callable[[Optional[dict]], Optional[dict]]) -> dict:
    """Changes a record atomically; returns the record's value after that, {} if there is none.

    All clients must use this method to change the record.

    Args:
      name: the record's name.
      function: takes the record's value, or None if there is none; returns the new value, or None
        to keep the value. If another client was faster, the function is called again.

    Raises:
      ControlError: the control task did not answer, so the change may or may not have been made;
        or other clients were faster at every try.
    """
    for _ in range(_TRIES):
      seen = self._run(self._ops.find, {name: {}})
      value = json.loads(seen.decode("utf-8").split(" ", 1)[1])[1] if seen else None
      # The function may modify its argument; the comparison uses the text.
      changed = function(None if value is None else dict(value))
      if changed is None:
        return value or {}
      if self._run(self._ops.swap, {name: changed}, {self._ops.expected: seen}):
        return changed
    raise ControlError("the control record %r was not written: other tasks changed it first, %d "
                       "times in a row" % (name, _TRIES))

  def close(self) -> None:
    """Closes the session, within a limit."""
    with self._lock:
      self._drop()

  def _read(self, fetches, records=None) -> Dict[str, ControlRecord]:
    began = time.monotonic()
    values, now_there = self._run(fetches, *([] if records is None else [records]))
    now, by_name = time.monotonic(), {}
    with self._lock:
      for text in values:
        stamp, data = text.decode("utf-8").split(" ", 1)
        name, value = json.loads(data)
        seen = self._written.get(name)
        if seen is None or seen[0] != stamp:
          age = max(0.0, float(now_there) - float(stamp))
          if seen is not None:  # written since the last look
            age = min(age, now - self._last_look)
          self._written[name] = seen = (stamp, now - age)
        by_name[name] = ControlRecord(value, now - seen[1])
      self._last_look = began
    return by_name

  def _run(self, fetches, records=None, more=None):
    feed = None if records is None else {**_encode(self._ops, records), **(more or {})}
    options = tf.RunOptions(timeout_in_ms=int(1000 * self._limit))
    with self._lock:
      try:
        try:
          return self._run_once(fetches, feed, options)
        except tf.errors.AbortedError:
          # The session is old: the control task was restarted, and has not begun the run. But a
          # swap may have been made, and its answer may have been lost in a connection reset.
          self._drop(broken=True)
          if more is not None:
            raise
          return self._run_once(fetches, feed, options)
      except ControlError:
        raise
      except (tf.errors.OpError, LimitExceeded, RuntimeError) as error:
        self._drop(broken=True)
        raise ControlError("%s at %s, which keeps the control records, does not answer: %s" % (
          self._control_task.name, self._control_task.address, error_line(error))) from error

  def _run_once(self, fetches, feed, options):
    if self._session is None:
      # A session on a task that is down would wait for it without a limit.
      seen = probe_task(self._control_task, timeout=min(TIMING.probe_limit, self._limit))
      if not seen.is_up:
        raise ControlError("%s at %s, which keeps the control records, is not there: %s" % (
          self._control_task.name, self._control_task.address, seen.detail))
      self._session = BoundedSession(
        self._target, self._ops.graph, self._config, close_limit=TIMING.run_session_close_limit)
    return call_within(
      self._limit + TIMING.call_grace, "asking %s for the control records" %
      self._control_task.name, retry_refused_run, tf.Session.run, self._session, fetches, feed,
      options)

  def _drop(self, broken=False):
    session, self._session = self._session, None
    if session is None:
      return
    if broken:
      session.abort(lambda: tf.errors.CancelledError(None, None, "given up"))
    session.close()


def table_for(record: ServerRecord, control_task) -> ControlTable:
  """Returns a server's access to the records of a control task; makes no call."""
  if record.is_proven or control_task == record.cluster.task:
    return ControlTable(record.target, record.cluster.task, control_task)
  # Through the control task's server, because a session of this server could end the sessions of
  # another process with the same task name.
  return ControlTable("grpc://" + control_task.address, control_task, control_task)


class _Ops(NamedTuple):
  graph: tf.Graph
  keys: tf.Tensor  # int64 [records], to feed
  values: tf.Tensor  # string [records], to feed
  insert: tf.Operation
  export: tuple  # the stamped values of all records, string [all]; the task's clock after that
  insert_then_export: tuple  # like `export`, after the insertion
  find: tf.Tensor  # the stamped value of the first key, or ""
  expected: tf.Tensor  # string scalar, to feed
  swap: tf.Tensor  # bool: whether the first key had the expected value, and was replaced


@functools.lru_cache(maxsize=16)  # a process makes several tables on one task
def _build(device: str) -> _Ops:
  graph = tf.Graph()
  with graph.as_default(), tf.device(device):
    table = tf.raw_ops.MutableHashTableV2(
      key_dtype=tf.int64, value_dtype=tf.string, container=containers.CONTROL,
      shared_name=TABLE)
    keys = tf.placeholder(tf.int64, [None])
    values = tf.placeholder(tf.string, [None])
    stamp = tf.fill(tf.shape(values), tf.as_string(tf.timestamp(), precision=3))
    stamped = tf.string_join([stamp, values], separator=" ")
    insert = tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=keys, values=stamped)
    export = _export(table)
    with tf.control_dependencies([insert]):
      insert_then_export = _export(table)
    stored = _find(table, keys)
    expected = tf.placeholder(tf.string, [])
    swap = _swap(table, keys, expected, stamped)
  return _Ops(graph, keys, values, insert, export, insert_then_export, stored, expected, swap)


def _find(table, keys):
  return tf.raw_ops.LookupTableFindV2(
    table_handle=table, keys=keys, default_value=tf.constant(""))[0]


def _swap(table, keys, expected, stamped):
  mutex = tf.raw_ops.MutexV2(container=containers.CONTROL, shared_name="records:changes")
  lock = tf.raw_ops.MutexLock(mutex=mutex)
  with tf.control_dependencies([lock]):
    same = tf.equal(_find(table, keys), expected)
  count = tf.reshape(tf.cast(same, tf.int32), [1])  # 1 or 0 records to insert
  insert = tf.raw_ops.LookupTableInsertV2(
    table_handle=table, keys=tf.slice(keys, [0], count), values=tf.slice(stamped, [0], count))
  with tf.control_dependencies([insert]):
    unlock = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
  with tf.control_dependencies([unlock]):
    return tf.identity(same)


def _export(table):
  _, values = tf.raw_ops.LookupTableExportV2(table_handle=table, Tkeys=tf.int64, Tvalues=tf.string)
  # The clock is read after the records; otherwise an age could be below zero.
  with tf.control_dependencies([values]):
    return values, tf.timestamp()


def _encode(ops: _Ops, records: Dict[str, dict]):
  names = sorted(records)
  keys = [int.from_bytes(hashlib.sha256(n.encode("utf-8")).digest()[:8], "big", signed=True)
          for n in names]
  values = [json.dumps([n, records[n]], sort_keys=True) for n in names]
  return {ops.keys: np.array(keys, np.int64), ops.values: values}
