"""Atomic steps on a named thing that detect a reset of its container.

Many clients use a thing that lives on a server under a name: a queue, an accumulator. TensorFlow's
own operations on it block, can be cancelled half-way, and continue on a new, empty thing after a
reset. A `Guard` lives beside the thing, on the same task:

1. A mutex makes several operations one step. It lives in the control container, because a ps may
   abort if a reset clears a mutex in use.
2. A register, a table in the thing's own container, holds a random number and a description under
   the name. A reset first marks the thing there as gone, then clears the register together with the
   thing (reset.py).
3. Each session remembers the entry that its first step found. A later step that finds another entry
   fails with "container ... was reset". A first step that finds another description fails with
   both descriptions.

A step waits only for the mutex, so none is cancelled half-way.

TensorFlow's mutex has a defect: a client that gives up its wait, or is killed in it, frees the lock
that another step holds. The steps here hold a lock for less than a millisecond, on one task, and a
caller gives up after seconds. So both happen at once only where a task was stopped for so long.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Callable, Dict, List, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.state import containers

REGISTER = "tf1ps.register"
QUEUE_KIND = "queue"  # a kind of thing; a reset closes these
# TensorFlow carries an error from a step to its caller only as text. These begin the text.
GUARD_RESET = "tf1ps reset: "
GUARD_MISMATCH = "tf1ps mismatch: "
GONE = "gone"  # the register's entry for a thing that a reset is about to clear
_NOTHING = "nothing"  # differs from every entry of a register
_NUMBER = 19  # digits of the random number before a description


class Guard:
  """The guard of one named thing in one graph.

  Attributes:
    container: the container; "" is the default one.
    container_title: the container's name in errors.
    kind: the kind of thing: "queue".
    device: the thing's task; "" if TensorFlow chooses it.
    name: its shared name, or "".
    name_in_graph: the last part of the operation's name.
    title: the thing's name in errors: its shared name, else `name_in_graph`.
    description: the JSON text on which clients must agree.
  """

  def __init__(self, op: tf.Operation, kind: str, name: str, description: Dict[str, object]):
    """Adds the guard's own operations to the op's graph.

    Args:
      op: the operation that makes the thing; the guard lives on its device and in its container.
      kind: the kind of thing, for the register: "queue".
      name: the shared name; "" for a thing that is private to each session.
      description: the properties on which two clients of the name must agree; JSON.
    """
    self._op = op
    self.kind = kind
    self.device = re.sub("/device:CPU:[*0]$", "", op.device)  # TensorFlow 2 adds it
    self.container = op.get_attr("container").decode("utf-8")
    self.container_title = self.container or "(default)"
    self.name = name
    self.name_in_graph = op.name.split("/")[-1]
    self.title = name or self.name_in_graph
    self.description = json.dumps(dict(description, thing=kind, name=name), sort_keys=True)
    lock = lock_name(kind, self.container, name) if name else ""
    with tf.control_dependencies(None), op.graph.colocate_with(op):
      self._key = tf.constant(register_key(kind, name), tf.int64)
      self._state_key = tf.constant(state_key(kind, name), tf.int64)
      self._mutex = tf.raw_ops.MutexV2(container=containers.CONTROL, shared_name=lock)
      self._register = table(self.container, REGISTER if name else "")
      self._seen = table(containers.CONTROL, "")  # private: each session has its own

  def step(self, function: Callable[[], Sequence[tf.Tensor]],
           inputs: Sequence[tf.Tensor] = (), may_be_first: bool = True):
    """Builds an atomic step; returns a list of the function's tensors, after the step has ended.

    Args:
      function: builds the operations of the step, which must not block; returns tensors.
      inputs: tensors that are computed before the step begins.
      may_be_first: whether the step may be the first of its session. If not, it costs less, and as
        a first step it fails like after a reset: run a step that may be first, then this one again.
    """
    with self._op.graph.colocate_with(self._op):
      with tf.control_dependencies(list(inputs)):
        lock = tf.raw_ops.MutexLock(mutex=self._mutex)
      with tf.control_dependencies([lock]):
        check = self._check(may_be_first)
      with tf.control_dependencies([check]):
        results = list(function())
      with tf.control_dependencies(results):
        unlock = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
      with tf.control_dependencies([unlock]):
        return [tf.raw_ops.Identity(input=result) for result in results]

  def read_register(self) -> tf.Tensor:
    """The register's entry: "" or "<number> <description>", a string scalar."""
    with self._op.graph.colocate_with(self._op):
      return find(self._register, self._key)

  def read_state(self) -> tf.Tensor:
    """The note that was written last, a string scalar."""
    return find(self._register, self._state_key)

  def write_state(self, text: str) -> tf.Operation:
    """Writes a note beside the thing, such as why it was closed."""
    return insert(self._register, self._state_key, tf.constant(text))

  def announce(self) -> tf.Operation:
    """Registers the thing for clients that use it without a step."""
    with self._op.graph.colocate_with(self._op):
      key = tf.constant(register_key(self.kind + ":announced", self.name), tf.int64)
      # All clients write the same entry, so they need no lock.
      return insert(self._register, key, tf.constant("0" * _NUMBER + " " + self.description))

  def forget(self) -> tf.Operation:
    """Forgets the entry that this session remembers, so that it accepts the present one."""
    with self._op.graph.colocate_with(self._op):
      return insert(self._seen, self._key, tf.constant(""))

  def _check(self, may_be_first) -> tf.Operation:
    """Fails unless the register has the entry that this session remembers.

    A step that may be the session's first has no branches: a `tf.cond` takes longer to build and
    to run than all of its operations.
    """
    nothing = tf.constant("")
    found = find(self._register, self._key, nothing if may_be_first else tf.constant(_NOTHING))
    # One after the other: TensorFlow spreads ready operations over threads, which takes longer.
    with tf.control_dependencies([found]):
      seen = find(self._seen, self._key, nothing)
    is_present = tf.raw_ops.Equal(x=seen, y=found)
    if may_be_first:
      is_present = tf.raw_ops.LogicalOr(x=is_present, y=tf.raw_ops.LogicalAnd(
        x=tf.raw_ops.Equal(x=seen, y=nothing),
        y=tf.raw_ops.NotEqual(x=found, y=tf.constant(GONE))))
    check = tf.raw_ops.Assert(
      condition=is_present, summarize=1,
      data=[tf.constant("%scontainer %s was reset" % (GUARD_RESET, self.container_title))])
    if not may_be_first:
      return check
    with tf.control_dependencies([check]):
      return self._remember(found, nothing)

  def _remember(self, found, nothing) -> tf.Operation:
    """Registers the thing if nobody has, compares descriptions, and remembers the entry.

    In a later step of the session, all of this changes nothing.
    """
    number = tf.raw_ops.RandomUniformInt(
      shape=tf.constant([], tf.int32, [0]), minval=tf.constant(10 ** (_NUMBER - 1), tf.int64),
      maxval=tf.constant(9 * 10 ** (_NUMBER - 1), tf.int64))
    description = tf.constant(self.description)
    mine = tf.raw_ops.StringJoin(
      inputs=[tf.raw_ops.AsString(input=number), description], separator=" ")
    known = tf.raw_ops.SelectV2(condition=tf.raw_ops.Equal(x=found, y=nothing), t=mine, e=found)
    there = tf.raw_ops.Substr(
      input=known, pos=tf.constant(_NUMBER + 1), len=tf.constant(1 << 20))
    same = tf.raw_ops.Assert(
      condition=tf.raw_ops.Equal(x=there, y=description), summarize=1,
      data=[tf.constant(GUARD_MISMATCH), there])
    with tf.control_dependencies([same]):
      register = insert(self._register, self._key, known)
    with tf.control_dependencies([register]):
      return insert(self._seen, self._key, known)


class Guarded:
  """The properties of a named thing, from its guard `_guard`."""

  @property
  def container(self) -> str:
    """The thing's container; "" is the default one."""
    return self._guard.container

  @property
  def device(self) -> str:
    """The thing's task; "" if TensorFlow chooses it."""
    return self._guard.device


def lock_name(kind: str, container: str, name: str) -> str:
  """The shared name of the mutex of a thing, in the control container."""
  return "%s:%s:%s" % (kind, container, name)


def register_key(kind: str, name: str) -> int:
  """The key of a thing in its register: an integer, as TensorFlow has no table from strings."""
  digest = hashlib.sha256(("%s:%s" % (kind, name)).encode("utf-8")).digest()
  return int.from_bytes(digest[:8], "big", signed=True)


def state_key(kind: str, name: str) -> int:
  """The key of the note beside a thing."""
  return register_key(kind + ":state", name)


def descriptions(values: Sequence[bytes]) -> List[Dict[str, object]]:
  """The descriptions in a register, one per thing, sorted by name."""
  found = {}
  for value in values:
    text = value.decode("utf-8")
    if text[:_NUMBER].isdigit():
      description = json.loads(text[_NUMBER + 1:])
      found[description.get("name"), description.get("thing")] = description
  return [found[key] for key in sorted(found, key=str)]


def table(container: str, shared_name: str) -> tf.Tensor:
  """A table from int64 to string; with an empty name, private to each session."""
  return tf.raw_ops.MutableHashTableV2(
    key_dtype=tf.int64, value_dtype=tf.string, container=container, shared_name=shared_name)


def find(handle: tf.Tensor, key: tf.Tensor, default: Optional[tf.Tensor] = None) -> tf.Tensor:
  """The value at a key, or the default, by default an empty text."""
  return tf.raw_ops.LookupTableFindV2(
    table_handle=handle, keys=key, default_value=tf.constant("") if default is None else default)


def insert(handle: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Operation:
  """Replaces the value at a key."""
  return tf.raw_ops.LookupTableInsertV2(table_handle=handle, keys=key, values=value)
