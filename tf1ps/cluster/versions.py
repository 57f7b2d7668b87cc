"""The version check: a worker on TensorFlow 2 does not train with a ps on TensorFlow 1.

A ps on TensorFlow 2 accepts workers on both versions. But a ps on TensorFlow 1 refuses the graphs
of a worker on TensorFlow 2 ("NodeDef missing attr ..."), which leave default values out.
"""

from __future__ import annotations

from typing import Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster.description import Task
from tf1ps.compat import TIMING, CallError, Error, get_version


class VersionError(Error, RuntimeError):
  """A ps runs a TensorFlow that is too old for this task."""


def check_versions(own_task: Task, tasks: Sequence[Task],
                   own_version: str = tf.version.VERSION) -> None:
  """Checks that no other task runs TensorFlow 1 while this task runs TensorFlow 2.

  A server that does not name its version passes.

  Args:
    own_task: this task.
    tasks: the tasks that run parts of this task's graphs, usually the ps.
    own_version: the version of this task's TensorFlow.

  Raises:
    VersionError: another task runs TensorFlow 1; the error names the task, its address and both
      versions.
  """
  if own_version.startswith("1."):
    return
  for task in tasks:
    if task.name == own_task.name:
      continue
    try:
      version = get_version(task.address, TIMING.probe_limit)
    except CallError:
      continue
    if version.startswith("1."):
      raise VersionError(
        "%s at %s runs TensorFlow %s, which cannot serve %s on TensorFlow %s. Start %s on "
        "TensorFlow %s first, or this task on TensorFlow %s." % (
          task.name, task.address, version, own_task.name, own_version, task.name, own_version,
          version))
