"""Indivisible steps on a named thing, which notice that its container was reset.

What lives on a server under a name (a queue, an accumulator) is used by many clients. TensorFlow's
own operations on it block, can be cancelled in the middle, and after a reset go on with a new,
empty one. A `Guard` stands beside the thing, on the same task:

1. A mutex makes several operations one step. It lives in the control container: with the mutex
   itself under reset, a ps may abort.
2. A register, a table in the thing's own container, says what lives under the name: a random
   number and a description. A reset first writes there that the thing is gone (retiring.py), then
   takes the register away together with the thing.
3. Each session remembers what it found there the first time. A step in which the register says
   something else fails with "container ... was reset", and one whose description differs from the
   first one's is refused with both.

No step waits for anything but the mutex, so none is ever cancelled half-way.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Callable, Dict, List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.state import containers

REGISTER = "tf1ps.register"
QUEUE_KIND = "queue"  # a kind of thing
# What the errors of a step begin with; queue_call.py knows RESET by it.
GUARD_RESET = "tf1ps reset: "
GUARD_MISMATCH = "tf1ps mismatch: "
GONE = "gone"  # what the register says of a thing that a reset is about to take away
_NOTHING = "nothing"  # no value of a register
_NUMBER = 19  # digits of the random number before a description


class Guard:
  """The guard of one named thing in one graph.

  Attributes:
    container: the container; "" is the default one.
    container_title: what to call it in an error.
    kind: what the thing is: "queue".
    device: the task that the thing lives on; "" where TensorFlow chooses.
    name: its shared name, or "".
    name_in_graph: the last part of the operation's name.
    title: what to call it in an error: its shared name, or that.
  """

  def __init__(self, op: tf.Operation, kind: str, name: str, description: Dict[str, object]):
    """Adds the guard's own operations to the op's graph.

    Args:
      op: the operation that makes the thing; the guard lives on its device and in its container.
      kind: what the thing is, for the register: "queue".
      name: the shared name; "" for a thing that is private to each session.
      description: what two clients of the name must agree on; JSON.
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
           inputs: Sequence[tf.Tensor] = (), meets: bool = True):
    """Builds an indivisible step.

    Args:
      function: builds the operations of the step, which must not block; returns tensors.
      inputs: what is computed before the step begins.
      meets: whether the step may be the first of its session. If not, it costs less, and fails as
        after a reset where it is: run a step that meets, and then this one again.

    Returns:
      The function's tensors, as of after the step: a list.
    """
    with self._op.graph.colocate_with(self._op):
      with tf.control_dependencies(list(inputs)):
        lock = tf.raw_ops.MutexLock(mutex=self._mutex)
      with tf.control_dependencies([lock]):
        check = self._check(meets)
      with tf.control_dependencies([check]):
        results = list(function())
      with tf.control_dependencies(results):
        unlock = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
      with tf.control_dependencies([unlock]):
        return [tf.identity(result) for result in results]

  def read_register(self) -> tf.Tensor:
    """What the register says: "" or "<number> <description>", a string scalar."""
    with self._op.graph.colocate_with(self._op):
      return find(self._register, self._key)

  def read_state(self) -> tf.Tensor:
    """The note that was written last, a string scalar."""
    return find(self._register, self._state_key)

  def write_state(self, text: str) -> tf.Operation:
    """Writes a note beside the thing, such as why it was closed."""
    return insert(self._register, self._state_key, tf.constant(text))

  def announce(self) -> tf.Operation:
    """Tells the register that the thing is there, where it may be used without a step."""
    with self._op.graph.colocate_with(self._op):
      key = tf.constant(register_key(self.kind + ":announced", self.name), tf.int64)
      # All clients write the same, so they need no lock.
      return insert(self._register, key, tf.constant("0" * _NUMBER + " " + self.description))

  def forget(self) -> tf.Operation:
    """Has this session take what is there now for what it knows."""
    with self._op.graph.colocate_with(self._op):
      return insert(self._seen, self._key, tf.constant(""))

  def _check(self, meets) -> tf.Operation:
    """Fails unless the register says what it said to this session at first."""
    found = find(self._register, self._key, "" if meets else _NOTHING)
    # One after the other: what is ready together is spread over threads, which takes longer.
    with tf.control_dependencies([found]):
      seen = find(self._seen, self._key)
    same = tf.equal(seen, found)
    if meets:
      is_first = tf.logical_and(tf.equal(seen, ""), tf.not_equal(found, GONE))
      same = tf.cond(is_first, lambda: self._meet(found), lambda: same)
    return tf.raw_ops.Assert(
      condition=same, summarize=1,
      data=[tf.constant("%scontainer %s was reset" % (GUARD_RESET, self.container_title))])

  def _meet(self, found):
    """The first step of a session: registers the thing, or compares it with what is there."""
    def register():
      number = tf.raw_ops.RandomUniformInt(
        shape=tf.constant([], tf.int32, [0]), minval=tf.constant(10 ** (_NUMBER - 1), tf.int64),
        maxval=tf.constant(9 * 10 ** (_NUMBER - 1), tf.int64))
      mine = tf.string_join([tf.as_string(number), self.description], separator=" ")
      with tf.control_dependencies([insert(self._register, self._key, mine)]):
        return tf.identity(mine)

    known = tf.cond(tf.equal(found, ""), register, lambda: found)
    there = tf.strings.substr(known, _NUMBER + 1, 1 << 20)
    same = tf.raw_ops.Assert(
      condition=tf.equal(there, self.description), summarize=1,
      data=[tf.constant(GUARD_MISMATCH), there])
    with tf.control_dependencies([same]):
      remember = insert(self._seen, self._key, known)
    with tf.control_dependencies([remember]):
      return tf.constant(True)


class Guarded:
  """What is told of every named thing with a guard, which it keeps as `_guard`."""

  @property
  def container(self) -> str:
    """The container that it lives in; "" is the default one."""
    return self._guard.container

  @property
  def device(self) -> str:
    """Where it lives; "" where TensorFlow chooses."""
    return self._guard.device


def lock_name(kind: str, container: str, name: str) -> str:
  """The shared name of the mutex of a thing, in the control container."""
  return "%s:%s:%s" % (kind, container, name)


def register_key(kind: str, name: str) -> int:
  """The key of a thing in the register of its container: TensorFlow has no table by strings."""
  digest = hashlib.sha256(("%s:%s" % (kind, name)).encode("utf-8")).digest()
  return int.from_bytes(digest[:8], "big", signed=True)


def state_key(kind: str, name: str) -> int:
  """The key of the note beside a thing."""
  return register_key(kind + ":state", name)


def descriptions(values: Sequence[bytes]) -> List[Dict[str, object]]:
  """The descriptions among the values of a register, one of each thing, sorted by name."""
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


def find(handle: tf.Tensor, key: tf.Tensor, default: str = "") -> tf.Tensor:
  """The value at a key, the default where there is none."""
  return tf.raw_ops.LookupTableFindV2(
    table_handle=handle, keys=key, default_value=tf.constant(default))


def insert(handle: tf.Tensor, key: tf.Tensor, value: tf.Tensor) -> tf.Operation:
  """Replaces the value at a key."""
  return tf.raw_ops.LookupTableInsertV2(table_handle=handle, keys=key, values=value)
