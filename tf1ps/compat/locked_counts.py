"""Counts of several workers, such as the global step, that lose no addition.

An optimizer raises the global step by an `AssignAdd` without a lock. Where two workers raise one
reference variable at the same moment, one addition may be lost: after 203 steps the checkpoint says
202. Where the system stops one of them between its read and its write, all additions in between are
lost: the global step falls back. A resource variable has its own lock.

An operation that exists can only be changed by `Operation._set_attr`, which is private; the test of
this module notices when it is gone.
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

_ADDITIONS = ("AssignAdd", "AssignSub")


def lock_counts(graph: tf.Graph) -> None:
  """Makes each addition to an integer reference variable of a graph take the variable's lock.

  Additions to floats stay as they are: there the optimizer's `use_locking` decides. A session that
  has run such an operation does not notice the change.
  """
  for operation in graph.get_operations():
    if operation.type in _ADDITIONS and operation.get_attr("T").is_integer:
      if not operation.get_attr("use_locking"):
        operation._set_attr("use_locking", tf.AttrValue(b=True))
