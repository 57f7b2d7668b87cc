"""Counts of several workers, such as the global step, that lose no addition.

An optimizer raises the global step by an `AssignAdd` without a lock. Where two workers raise the
same reference variable at the same moment, an addition may be lost: after 203 steps the checkpoint
says 202. Where the system stops a worker between its read and its write, all additions in between
are lost: the global step falls back. A resource variable has its own lock.

An operation that exists can only be changed by `Operation._set_attr`, which is private; the test of
this module notices when it is gone.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_ADDITIONS = ("AssignAdd", "AssignSub")


def lock_counts(graph: tf.Graph) -> None:
  """Makes each addition to a count take the variable's lock.

  A count is a reference variable of integers, or a scalar: a global step may be a float.
  Additions to other floats stay as they are: there the optimizer's `use_locking` decides. A session
  that has run such an operation does not notice the change.
  """
  for operation in graph.get_operations():
    if operation.type in _ADDITIONS and not operation.get_attr("use_locking") and (
        operation.get_attr("T").is_integer or operation.inputs[0].shape.ndims == 0):
      operation._set_attr("use_locking", tf.AttrValue(b=True))
