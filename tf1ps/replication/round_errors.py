"""The errors of synchronous rounds, and the answer to each.

An operation can only raise an error of TensorFlow, so a line in the error's text carries the
meaning. Only this module reads these lines:

  end of the replicas   training has ended for all: the loop ends (`is_end_of_replicas`)
  partial update        an update was interrupted: the chief restores the last checkpoint
  not joined            the round's state was cleared: the replica joins again, in a new session
  other rules           no new session helps: `RoundRulesError`
"""

from __future__ import annotations

import re

import tensorflow.compat.v1 as tf

from tf1ps.compat import Error, error_causes, failed_assertions
from tf1ps.state import GUARD_MISMATCH

_PARTIAL = "tf1ps partial update: "
_NOT_JOINED = "tf1ps not joined: "
_ENDED = "the_replicas_have_ended"  # the name of a queue, with which TensorFlow's error begins
_HAVE_ENDED = re.compile(r"FIFOQueue '[^']*%s[^']*' is closed" % _ENDED)


class RoundRulesError(Error, RuntimeError):
  """The replicas of a job have different rules for synchronous updates."""


def is_end_of_replicas(error: BaseException) -> bool:
  """Whether an error means that training ended for all, not that this replica's data ended."""
  return isinstance(error, tf.errors.OutOfRangeError) and any(
    map(_HAVE_ENDED.match, error_causes(error)))


def explain_round_error(error: BaseException) -> BaseException:
  """Returns the error to raise in place of the error of a training step.

  It is an AbortedError, from which a MonitoredSession recovers with a new session; a
  RoundRulesError; or the error itself.
  """
  if isinstance(error, tf.errors.InvalidArgumentError):
    for text in failed_assertions(error):
      for meaning in (_PARTIAL, _NOT_JOINED):
        if text.startswith(meaning):
          return tf.errors.AbortedError(None, None, text[len(meaning):])
      unescaped = text.replace('\\"', '"')  # Assert escapes quotes
      if unescaped.startswith(GUARD_MISMATCH) and '"on_uneven"' in unescaped:
        return RoundRulesError(
          "the replicas of this container use other rules for synchronous updates than this "
          "replica: %s. Give all of them the same number of workers, --sync_replicas and "
          "--on_uneven, or use another --container." % unescaped[len(GUARD_MISMATCH):].strip("] ["))
  return error


# The operations that raise these errors.

def check_no_partial_update(updating: tf.Tensor) -> tf.Operation:
  """Fails where an update has begun (1) and was interrupted."""
  return tf.raw_ops.Assert(condition=tf.equal(updating, 0), data=[tf.constant(
    "%san update was interrupted: some variables have it and others do not. The last checkpoint "
    "must be restored, or training must start from the beginning." % _PARTIAL)])


def check_joined(condition: tf.Tensor, replica: int) -> tf.Operation:
  """Fails unless `condition` holds, which holds for every replica that has joined."""
  return tf.raw_ops.Assert(condition=condition, data=[tf.constant(
    "%sreplica %d has not joined. Run the hook of make_session_run_hook, or local_step_init_op, "
    "in this session first." % (_NOT_JOINED, replica))])


def raise_end(shape: list) -> tf.Tensor:
  """Raises the OutOfRangeError of `is_end_of_replicas` in place of an int64 tensor."""
  with tf.control_dependencies(None):  # a copied graph shares the queue, and its inputs
    handle = tf.raw_ops.FIFOQueueV2(component_types=[tf.int64], shapes=[shape], name=_ENDED)
  with tf.control_dependencies([tf.raw_ops.QueueCloseV2(
      handle=handle, cancel_pending_enqueues=True)]):
    return tf.raw_ops.QueueDequeueV2(handle=handle, component_types=[tf.int64])[0]
