"""Taking what tf1ps made in a container out of use, so that the container can be cleared.

Between the first operation of a step and its last one a queue must not be taken away: another
client may make a new, empty one under its name, on which the rest of the step would wait for ever,
with the lock in its hands. So each thing of the container's register is retired under its lock,
when no step on it is in progress; what begins afterwards is told of the reset by the register, and
touches nothing. A queue is closed in the same step, which ends stock operations that wait for it.

A queue's handle is usually had from the operation that makes it, which needs the queue's class,
types and capacity. TensorFlow's older operations take a reference to two strings instead, the
container and the name, and close any queue.
"""

from __future__ import annotations

from typing import Dict, List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import BoundedSession
from tf1ps.compat import TIMING
from tf1ps.state import containers, guard


def retire(task, names: Sequence[str], others: Sequence[str] = ()) -> List[str]:
  """Takes out of use what lives in containers of one task; ends what is blocked on its queues.

  Args:
    task: the `spec.Task`.
    names: of the containers, as the server knows them.
    others: shared names of queues that tf1ps did not make; where there is none it is passed over.

  Returns:
    "container/queue" of each queue that was closed.
  """
  graph = tf.Graph()
  with graph.as_default(), tf.device(task.name):
    registers = {name: guard.table(name, guard.REGISTER) for name in names}
    values = {name: _values(register) for name, register in registers.items()}
  config = tf.ConfigProto(device_filters=[task.name])
  closed = []
  with BoundedSession("grpc://" + task.address, graph, config, 1.0) as session:
    for name in names:
      things = guard.descriptions(session.run(values[name]))
      with graph.as_default(), tf.device(task.name):
        steps = [_Retiring(task, name, registers[name], thing) for thing in things]
        ours = {step.queue for step in steps}
        closes = {other: _close(name, other) for other in others if other not in ours}
      closed += ["%s/%s" % (name, step.queue) for step in _run_all(session, steps) if step.queue]
      closed += ["%s/%s" % (name, other) for other, close in closes.items()
                 if _is_there(session.run, close)]
  return closed


def _run_all(session, steps):
  """Retires things, at once where that can be done; returns the steps of those that were there."""
  try:
    session.run([step.alone for step in steps], options=_limit())
    return steps
  except (tf.errors.DeadlineExceededError, tf.errors.NotFoundError):
    return [step for step in steps if step.run(session)]


def _limit():
  return tf.RunOptions(timeout_in_ms=int(1000 * TIMING.reset_lock_limit))


class _Retiring:
  """The step that retires one thing.

  Attributes:
    queue: the name of the queue that it closes; None where the thing is none.
    alone: the operation that does it when no other step is in progress.
  """

  def __init__(self, task, container: str, register, thing: Dict[str, object]):
    """Adds it to the default graph.

    Args:
      task: where the thing lives.
      container: its container, as the server knows it.
      register: the container's register.
      thing: its description there.
    """
    kind, name = thing["thing"], thing["name"]
    self.queue = name if kind == guard.QUEUE_KIND else None
    # Who lives in the default container calls it "".
    called = ["", container] if container == task.job else [container]
    locks = []
    for one in called:
      mutex = tf.raw_ops.MutexV2(
        container=containers.CONTROL, shared_name=guard.lock_name(kind, one, name))
      with tf.control_dependencies(locks):
        locks.append(tf.raw_ops.MutexLock(mutex=mutex))
    self._at_once = self._retire(register, kind, container, name)
    with tf.control_dependencies(locks):
      retired = self._retire(register, kind, container, name)
    with tf.control_dependencies([retired]):
      self.alone = tf.group(*[tf.raw_ops.ConsumeMutexLock(mutex_lock=lock) for lock in locks])

  def run(self, session) -> bool:
    """Retires the thing; returns whether it was there."""
    try:
      return _is_there(session.run, self.alone, options=_limit())
    except tf.errors.DeadlineExceededError:
      return _is_there(session.run, self._at_once)

  def _retire(self, register, kind, container, name):
    gone = guard.insert(register, tf.constant(guard.register_key(kind, name), tf.int64), guard.GONE)
    if self.queue is None:
      return gone
    with tf.control_dependencies([gone]):
      return _close(container, name)


def _is_there(run, *args, **kwargs) -> bool:
  try:
    run(*args, **kwargs)
  except tf.errors.NotFoundError:
    return False
  return True


def _values(register):
  return tf.raw_ops.LookupTableExportV2(
    table_handle=register, Tkeys=tf.int64, Tvalues=tf.string)[1]


def _close(container, name):
  """Closes the queue with this name; fails with NotFoundError where there is none."""
  reference = tf.raw_ops.VariableV2(
    shape=[2], dtype=tf.string, container=containers.CONTROL, shared_name="")
  reference = tf.raw_ops.Assign(ref=reference, value=tf.constant([container, name]))
  return tf.raw_ops.QueueClose(handle=reference, cancel_pending_enqueues=True)
