"""Closing queues of a container without having made them.

A queue's handle is usually had from the operation that makes it, which needs the queue's class,
types and capacity. TensorFlow's older operations take a reference to two strings instead, the
container and the name, and close any queue.
"""

from __future__ import annotations

from typing import List, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import session as session_lib
from tf1ps.state import containers, guard, queue_steps


def close_queues(task, names: Sequence[str], others: Sequence[str] = ()) -> List[str]:
  """Closes the queues in containers of one task because of a reset; ends what is blocked on them.

  Args:
    task: the `spec.Task`.
    names: of the containers, as the server knows them.
    others: shared names of queues that tf1ps did not make; where there is none it is passed over.

  Returns:
    "container/queue" of each queue that was closed.
  """
  graph = tf.Graph()
  with graph.as_default(), tf.device(task.name):
    key = tf.placeholder(tf.int64, [])
    container, queue = tf.placeholder(tf.string, []), tf.placeholder(tf.string, [])
    close = _close(container, queue)
    registers = []
    for name in names:
      register = guard.table(name, guard.REGISTER)
      registers.append((name, _values(register), guard.insert(
        register, key, tf.constant(queue_steps.RESET))))
  closed = []
  config = tf.ConfigProto(device_filters=[task.name])
  with session_lib.BoundedSession("grpc://" + task.address, graph, config, 1.0) as session:
    for name, values, note in registers:
      ours = [description["name"] for description in guard.descriptions(session.run(values))
              if description["thing"] == guard.QUEUE]
      for one in ours:
        session.run(note, {key: guard.state_key(guard.QUEUE, one)})
      for one in ours + [other for other in others if other not in ours]:
        try:
          session.run(close, {container: name, queue: one})
        except tf.errors.NotFoundError:
          continue
        closed.append("%s/%s" % (name, one))
  return closed


def _values(register):
  return tf.raw_ops.LookupTableExportV2(
    table_handle=register, Tkeys=tf.int64, Tvalues=tf.string)[1]


def _close(container, queue):
  """Closes the queue with this name; fails with NotFoundError where there is none."""
  reference = tf.raw_ops.VariableV2(
    shape=[2], dtype=tf.string, container=containers.CONTROL, shared_name="")
  reference = tf.raw_ops.Assign(ref=reference, value=tf.stack([container, queue]))
  return tf.raw_ops.QueueClose(handle=reference, cancel_pending_enqueues=True)
