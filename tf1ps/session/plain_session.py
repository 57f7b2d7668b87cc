"""`Session`, a drop-in for `tf.Session`, for programs that have only plain sessions.

On the target of a `tf1ps.Server` it differs from TensorFlow's session as follows:

1. It sees its own task, the ps, and the tasks that the graph names so far. TensorFlow's session
   waits for every task of the cluster, even for tasks that have ended.
2. It starts when these tasks answer, or names the missing tasks.
3. Its task is present in the job, and the end of the program ends the task's part (presence.py).
4. Its runs can be interrupted, and its close is bounded.

On any other target only the fourth difference holds.
"""

from __future__ import annotations

from typing import Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  BoundedSession,
  ServerRecord,
  VersionError,
  check_versions,
  filters_show_task,
  make_device_filters,
  record_of,
  wait_for_tasks,
)
from tf1ps.compat import DropIn, lock_counts
from tf1ps.graph import TooLargeError, find_too_large, needed_ops, ops_of
from tf1ps.session import packing, presence, unplaced
from tf1ps.session import settings as settings_lib


class Session(BoundedSession, metaclass=DropIn):
  """A `tf.Session` that starts within a limit, and whose task is present in its job."""

  _replaces = tf.Session

  def __init__(self, target: str = "", graph: Optional[tf.Graph] = None,
               config: Optional[tf.ConfigProto] = None, *,
               start_timeout: float = settings_lib.START_TIMEOUT):
    """Creates the session, like `tf.Session`.

    Args:
      target: the target of this process's server; "" runs in this process.
      graph: the graph; None: the default graph.
      config: a `tf.ConfigProto`.
      start_timeout: seconds until the tasks that the session sees must answer.

    Raises:
      TaskUnavailableError: a task did not answer within start_timeout.
      VersionError: a ps runs TensorFlow 1, and this task TensorFlow 2.
      ClusterError: the graph names a task that is not in the cluster.
    """
    record = record_of(target) if target else None
    self._presence, self._record, self._seen_version = None, record, -1
    self._too_large = {}
    if record is not None:
      target = record.target  # an address would cost more calls
      config = _with_filters(config, record, graph or tf.get_default_graph())
      others = [task for task in record.cluster.tasks() if task.name != record.cluster.task.name
                and filters_show_task(config.device_filters, task)]
      wait_for_tasks(others, start_timeout, "the cluster is not ready")
      self._presence = presence.be_present(record)
      try:
        check_versions(record.cluster.task, [task for task in others if task.job == "ps"])
      except VersionError:
        if self._presence is not None:
          self._presence.go_through_control_task()
        raise
    super().__init__(target, graph, config)
    if self._presence is not None:
      self._presence.watch(self)

  def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
    """Like `tf.Session.run`; raises TooLargeError for a tensor too large for a message."""
    if self._record is not None and self.graph.version != self._seen_version:
      unplaced.place_unplaced(self.graph, self._record.cluster)
      packing.pack_once(self.graph, self._record.cluster)
      lock_counts(self.graph)
      self._too_large = find_too_large(self.graph, self._record.cluster.task.name)
      self._seen_version = self.graph.version
    if self._too_large:
      self._check(fetches)
    result = super().run(fetches, feed_dict, options, run_metadata)
    if self._presence is not None:
      self._presence.count_run()
    return result

  def _check(self, fetches):
    leaves = tf.nest.flatten(fetches, expand_composites=True)
    items = [self.graph.as_graph_element(leaf) for leaf in leaves]
    for op in needed_ops(ops_of(items)):
      if op in self._too_large:
        raise TooLargeError(self._too_large[op])


def _with_filters(config: Optional[tf.ConfigProto], record: ServerRecord,
                  graph: tf.Graph) -> tf.ConfigProto:
  filtered = tf.ConfigProto()
  if config is not None:
    filtered.CopyFrom(config)
  if record.logs_placement:
    filtered.log_device_placement = True
  if not filtered.device_filters:
    cluster = record.cluster
    names = make_device_filters(graph, cluster)
    if cluster.task in cluster.replicas:
      names += [task.name for task in cluster.ps if task.name not in names]
    filtered.device_filters.extend(names)
  return filtered
