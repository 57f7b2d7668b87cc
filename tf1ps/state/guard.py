"""Atomic steps on a named object that detect a reset of its container.

Many clients use an object that lives on a server under a name, such as a queue or a round.
TensorFlow's own operations on the object block, can be cancelled half-way, and continue on a new,
empty object after a reset. A `Guard` lives beside the object, on the same task:

1. A mutex makes a step of several operations. It lives in the control container, because a ps may
   abort if a reset clears a mutex in use.
2. A register, a table in the object's own container, holds a random number and a description under
   the name. A reset first marks the object there as gone, then clears the register together with
   the object (reset.py).
3. Each session remembers the entry that its first step reads. A later step that reads another entry
   fails with "container ... was reset". A first step that reads another description than its own
   fails with both descriptions.

The states of a session, as far as one thing is concerned:

  state   the session remembers   the register    next state
  new     nothing                 anything        member: `step`, unless the thing is marked as gone
                                                  or has another description
  member  the register's entry    an entry        reset: `mark` or `clear` of a reset; new: `forget`
  reset   an entry that is gone   anything else   new: `forget`

Only a member's steps succeed. When a session ends, even inside a step, the lock is free, and the
session that replaces it is new. A step waits only for the mutex, so no step is cancelled half-way.

TensorFlow's mutex has a defect: a client that gives up its wait, or is killed during it, frees the
lock that another step holds. The steps here hold a lock for less than a millisecond, on one task,
and a caller gives up after seconds. So a wait ends while another step holds the lock only if a task
was stopped for seconds.
"""

from __future__ import annotations

import hashlib
import json
import re
import weakref
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps import graph
from tf1ps.state import containers

REGISTER = "tf1ps.register"
QUEUE_KIND = "queue"  # a kind of object; a reset closes these
GUARD_MISMATCH = "tf1ps mismatch: "  # begins the text of a failed assertion
GONE = "gone"  # the register's entry for an object that a reset is about to clear
_NOTHING = "nothing"  # differs from every entry of a register
# The names of a guard's operations, and of its constants.
MUTEX, REGISTER_TABLE = "mutex", "register"
KEY, STATE_KEY, DESCRIPTION, WAS_RESET = "key", "state_key", "description", "was_reset"
ANNOUNCED_KEY, ANNOUNCED = "announced_key", "announced"
_NUMBER = 19  # digits of the random number before a description


class Label(NamedTuple):
  """The identity of a named object."""

  kind: str  # "queue"
  name: str  # its shared name; "" for an object that is private to each session
  container: str  # "" is the default container
  description: str  # JSON text on which clients must agree

  @classmethod
  def of(cls, op: tf.Operation, kind: str, name: str, description: Dict[str, object]) -> "Label":
    """Returns the label of the object that an operation creates."""
    return cls(kind, name, op.get_attr("container").decode("utf-8"),
               json.dumps(dict(description, thing=kind, name=name), sort_keys=True))

  @property
  def container_title(self) -> str:
    """The container's name in errors."""
    return self.container or "(default)"

  @property
  def was_reset(self) -> str:
    """The text of the assertion that fails after a reset of the container."""
    return "container %s was reset" % self.container_title


class GuardOps(NamedTuple):
  """A guard's own operations."""

  mutex: tf.Tensor  # a resource, like the tables
  register: tf.Tensor
  seen: tf.Tensor  # the table of the entry that the session remembers
  key: tf.Tensor  # the key of the entry in both tables, int64 scalar
  state_key: tf.Tensor  # the key of the note beside the object


class Guard:
  """The guard of a named object in a graph.

  Attributes:
    label: the object's `Label`.
    container, kind, name: the label's container, kind and name.
    device: the object's task; "" if TensorFlow chooses it.
    name_in_graph: the last part of the operation's name.
    title: the object's name in errors: its shared name, else `name_in_graph`.
    greeted: the sessions that have made their first step, as far as this process knows.
  """

  def __init__(self, op: tf.Operation, label: Label, ops: Optional[GuardOps] = None):
    """Makes the guard.

    Args:
      op: the operation that creates the object; the guard is on its device and in its container.
      label: the object's label.
      ops: the guard's own operations, if they already exist; None: they are added.
    """
    self._op = op
    self.label = label
    self.kind, self.name, self.container = label.kind, label.name, label.container
    self.device = device_of(op)
    self.name_in_graph = op.name.split("/")[-1]
    self.title = label.name or self.name_in_graph
    self.greeted: "weakref.WeakSet[tf.Session]" = weakref.WeakSet()
    self._constants: Dict[tuple, tf.Tensor] = {}
    self.ops = self._build() if ops is None else ops

  def _build(self) -> GuardOps:
    names = resource_names(self.label)
    with tf.control_dependencies(None), self._op.graph.colocate_with(self._op):
      return GuardOps(
        tf.raw_ops.MutexV2(
          container=containers.CONTROL, shared_name=names.mutex, name=MUTEX),
        table(self.container, names.register, REGISTER_TABLE),
        table(containers.CONTROL, ""),  # private: each session has its own
        self.constant(register_key(self.kind, self.name), tf.int64, KEY),
        self.constant(state_key(self.kind, self.name), tf.int64, STATE_KEY))

  def constant(self, value, dtype: Optional[tf.DType] = None, name: str = "Const") -> tf.Tensor:
    """Returns a constant beside the object; equal values share a constant."""
    key = repr(value), dtype, name
    if key not in self._constants:
      with tf.control_dependencies(None), self._op.graph.colocate_with(self._op):
        self._constants[key] = tf.constant(value, dtype, name=name)
    return self._constants[key]

  def step(self, function: Callable[[], Sequence[tf.Tensor]],
           inputs: Sequence[tf.Tensor] = (), may_be_first: bool = True, begin=None):
    """Builds an atomic step; returns a list of the function's tensors, after the step has ended.

    Args:
      function: builds the operations of the step, which must not block; returns tensors, and
        operations that must run before the step ends.
      inputs: tensors that are computed before the step begins.
      may_be_first: whether the step may be the first step of its session. A step that may not be
        first costs less, but fails as after a reset if it is the first: before it, run a step that
        may be first.
      begin: the result of `begin`, instead of `inputs` and `may_be_first`.
    """
    with self._op.graph.colocate_with(self._op):
      lock, check = begin or self.begin(inputs, may_be_first)
      with tf.control_dependencies([check]):
        results = list(function())
      with tf.control_dependencies([check] + results):
        unlock = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
      with tf.control_dependencies([unlock]):
        return [tf.raw_ops.Identity(input=result) for result in results
                if not isinstance(result, tf.Operation)]

  def begin(self, inputs: Sequence[tf.Tensor] = (), may_be_first: bool = False):
    """Builds the beginning of a step: the lock, and the check.

    Steps that run in different session runs may share it.
    """
    with self._op.graph.colocate_with(self._op):
      with tf.control_dependencies(list(inputs)):
        lock = tf.raw_ops.MutexLock(mutex=self.ops.mutex)
      with tf.control_dependencies([lock]):
        return lock, self._check(may_be_first)

  def entries(self) -> List[tf.Tensor]:
    """The register's entry and the entry that this session remembers, string scalars.

    Each entry is "" or "<number> <description>"; the register's entry may also be `GONE`.
    """
    return [self._find(self.ops.register), self._find(self.ops.seen)]

  def read_state(self) -> tf.Tensor:
    """The note that was written last, a string scalar."""
    return self._find(self.ops.register, self.ops.state_key)

  def write_state(self, text: tf.Tensor) -> tf.Operation:
    """Writes a note beside the object, such as why it was closed; a string scalar."""
    return insert(self.ops.register, self.ops.state_key, text)

  def forget(self) -> tf.Operation:
    """Forgets the entry that this session remembers, so that it accepts the current entry."""
    with self._op.graph.colocate_with(self._op):
      return insert(self.ops.seen, self.ops.key, self.constant(""))

  def _find(self, handle, key=None) -> tf.Tensor:
    with self._op.graph.colocate_with(self._op):
      return find(handle, self.ops.key if key is None else key, self.constant(""))

  def _check(self, may_be_first) -> tf.Operation:
    """Fails unless the register has the entry that this session remembers.

    A step that may be the session's first has no branches: a `tf.cond` takes longer to build and
    to run than all of its operations.
    """
    nothing = self.constant("")
    entry = find(self.ops.register, self.ops.key,
                 nothing if may_be_first else self.constant(_NOTHING))
    # The lookups run in turn: TensorFlow spreads ready operations over threads, which takes longer.
    with tf.control_dependencies([entry]):
      seen = find(self.ops.seen, self.ops.key, nothing)
    is_present = tf.raw_ops.Equal(x=seen, y=entry)
    if may_be_first:
      is_present = tf.raw_ops.LogicalOr(x=is_present, y=tf.raw_ops.LogicalAnd(
        x=tf.raw_ops.Equal(x=seen, y=nothing),
        y=tf.raw_ops.NotEqual(x=entry, y=self.constant(GONE))))
    check = tf.raw_ops.Assert(
      condition=is_present, summarize=1,
      data=[self.constant(self.label.was_reset, name=WAS_RESET)])
    if not may_be_first:
      return check
    with tf.control_dependencies([check]):
      return self._remember(entry, nothing)

  def _remember(self, entry, nothing) -> tf.Operation:
    """Registers the object if it is not registered, compares descriptions, remembers the entry.

    In a later step of the session, these operations change nothing.
    """
    number = tf.raw_ops.RandomUniformInt(
      shape=self.constant([], tf.int32), minval=self.constant(10 ** (_NUMBER - 1), tf.int64),
      maxval=self.constant(9 * 10 ** (_NUMBER - 1), tf.int64))
    description = self.constant(self.label.description, name=DESCRIPTION)
    mine = tf.raw_ops.StringJoin(
      inputs=[tf.raw_ops.AsString(input=number), description], separator=" ")
    known = tf.raw_ops.SelectV2(condition=tf.raw_ops.Equal(x=entry, y=nothing), t=mine, e=entry)
    there = tf.raw_ops.Substr(
      input=known, pos=self.constant(_NUMBER + 1), len=self.constant(1 << 20))
    same = tf.raw_ops.Assert(
      condition=tf.raw_ops.Equal(x=there, y=description), summarize=1,
      data=[self.constant(GUARD_MISMATCH), there])
    with tf.control_dependencies([same]):
      register = insert(self.ops.register, self.ops.key, known)
    with tf.control_dependencies([register]):
      return insert(self.ops.seen, self.ops.key, known)


def announce(op: tf.Operation, label: Label, register: Optional[tf.Tensor] = None) -> tf.Operation:
  """Registers the object that an operation creates, for clients that use it without a step.

  `register` is the tensor of the register, if it already exists.
  """
  with op.graph.colocate_with(op):
    if register is None:
      register = table(label.container, resource_names(label).register)
    # All clients write the same entry, so they need no lock.
    return insert(register, tf.constant(announced_key(label), tf.int64, name=ANNOUNCED_KEY),
                  tf.constant(announced_entry(label), name=ANNOUNCED))


class Guarded:
  """The properties of a named object, from its guard `_guard`."""

  @property
  def container(self) -> str:
    """The object's container; "" is the default container."""
    return self._guard.container

  @property
  def device(self) -> str:
    """The object's task; "" if TensorFlow chooses it."""
    return self._guard.device


class _ResourceNames(NamedTuple):
  mutex: str  # in the control container
  register: str  # in the object's container


def resource_names(label: Label) -> _ResourceNames:
  """The shared names of a guard's resources; "" for a resource that is private to each session."""
  if not label.name:
    return _ResourceNames("", "")
  return _ResourceNames(lock_name(label.kind, label.container, label.name), REGISTER)


def constants_of(label: Label) -> Dict[str, Dict[str, tf.AttrValue]]:
  """The attributes of a guard's own constants, by name, for a template (graph/templates.py)."""
  texts = {DESCRIPTION: label.description, WAS_RESET: label.was_reset,
           ANNOUNCED: announced_entry(label)}
  keys = {KEY: register_key(label.kind, label.name), STATE_KEY: state_key(label.kind, label.name),
          ANNOUNCED_KEY: announced_key(label)}
  constants = {name: graph.constant_attributes(text, tf.string) for name, text in texts.items()}
  constants.update((name, graph.constant_attributes(key, tf.int64)) for name, key in keys.items())
  return constants


def device_of(op: tf.Operation) -> str:
  """The task of the object that an operation creates; "" if TensorFlow chooses it."""
  return re.sub("/device:CPU:[*0]$", "", op.device)  # TensorFlow 2 adds the CPU


def announced_key(label: Label) -> int:
  """The key of the entry of `announce`."""
  return register_key(label.kind + ":announced", label.name)


def announced_entry(label: Label) -> str:
  """The entry of `announce`."""
  return "0" * _NUMBER + " " + label.description


def lock_name(kind: str, container: str, name: str) -> str:
  """The shared name of the mutex of an object, in the control container."""
  return "%s:%s:%s" % (kind, container, name)


def register_key(kind: str, name: str) -> int:
  """The integer key of an object in its register: TensorFlow has no table from strings."""
  digest = hashlib.sha256(("%s:%s" % (kind, name)).encode("utf-8")).digest()
  return int.from_bytes(digest[:8], "big", signed=True)


def state_key(kind: str, name: str) -> int:
  """The key of the note beside an object."""
  return register_key(kind + ":state", name)


def descriptions(values: Sequence[bytes]) -> List[Dict[str, object]]:
  """The descriptions in a register, one per object, sorted by name."""
  by_object = {}
  for value in values:
    text = value.decode("utf-8")
    if text[:_NUMBER].isdigit():
      description = json.loads(text[_NUMBER + 1:])
      by_object[description.get("name"), description.get("thing")] = description
  return [by_object[key] for key in sorted(by_object, key=str)]


def table(container: str, shared_name: str, name: Optional[str] = None) -> tf.Tensor:
  """A table from int64 to string; with an empty shared name, private to each session."""
  return tf.raw_ops.MutableHashTableV2(
    key_dtype=tf.int64, value_dtype=tf.string, container=container, shared_name=shared_name,
    name=name)


def find(handle: tf.Tensor, key: tf.Tensor, default: tf.Tensor) -> tf.Tensor:
  """The value at a key, or the default."""
  return tf.raw_ops.LookupTableFindV2(table_handle=handle, keys=key, default_value=default)


def insert(handle: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Operation:
  """Replaces the value at a key."""
  return tf.raw_ops.LookupTableInsertV2(table_handle=handle, keys=key, values=value)
