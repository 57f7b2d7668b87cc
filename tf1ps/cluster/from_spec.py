"""The view of a job from what `tf.train.Server` accepts, for drop-ins.

A ServerDef, a ClusterDef, a ClusterSpec or a dict becomes a `Cluster`, with the jobs' own names and
with the gaps between the indices of a sparse job. Whoever leaves job or index away gets them where
stock would find them: the only job, and the only task of the job.
"""

from __future__ import annotations

import operator
import re
from typing import Dict, Optional

from tf1ps.cluster import checks
from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.view import Cluster


def from_cluster_spec(server_or_cluster_def, job_name: Optional[str] = None,
                      task_index: Optional[int] = None) -> Cluster:
  """Makes the view of a cluster that was described as for `tf.train.Server`.

  Args:
    server_or_cluster_def: A `tf.train.ServerDef`, `ClusterDef` or `ClusterSpec`, or a dict from a
      job to a list of addresses or to a dict from indices to addresses.
    job_name: This task's job. None: what a ServerDef says, else the only job.
    task_index: This task's index. None: what a ServerDef says, else the only task of the job.

  Returns:
    A checked `Cluster`.

  Raises:
    ClusterError: If it is none of these, if job or index are missing where there are several, and
      for everything that `checks.check_cluster` refuses.
  """
  import tensorflow.compat.v1 as tf
  given = server_or_cluster_def
  if isinstance(given, tf.train.ServerDef):
    job_name = given.job_name if job_name is None else job_name
    task_index = given.task_index if task_index is None else task_index
    given = given.cluster
  if isinstance(given, tf.train.ClusterSpec):
    given = given.as_cluster_def()
  if isinstance(given, tf.train.ClusterDef):
    given = {job.name: dict(job.tasks) for job in given.job}
  if not isinstance(given, dict):
    raise ClusterError(f"{given!r} describes no cluster: give a ServerDef, ClusterDef, ClusterSpec "
                       'or a dict such as {"ps": ["host:2222"], "worker": ["host:2223"]}')
  jobs = {_text(job): index_tasks(tasks, f"{checks.CLUSTER_SPEC} {_text(job)}")
          for job, tasks in given.items()}
  if job_name is None and len(jobs) == 1:
    job_name = next(iter(jobs))
  job_name = _text(job_name)
  if task_index is None and len(jobs.get(job_name, {})) == 1:
    task_index = next(iter(jobs[job_name]))
  if hasattr(task_index, "__index__") and not isinstance(task_index, bool):
    task_index = operator.index(task_index)  # of numpy, too
  cluster = Cluster(jobs, job_name, task_index, source=checks.CLUSTER_SPEC)
  checks.check_cluster(cluster)
  return cluster


def index_tasks(tasks, source: str) -> Dict[int, str]:
  """Returns the addresses of one job by their indices.

  Args:
    tasks: A list of addresses, or a dict from indices (numbers, or text as in JSON) to addresses.
    source: Where the tasks were written, for the error.

  Raises:
    ClusterError: If it is neither, or an index is no number or given twice.
  """
  if isinstance(tasks, (list, tuple)):
    return {index: _text(address) for index, address in enumerate(tasks)}
  if not isinstance(tasks, dict):
    raise ClusterError(f'{source}: {tasks!r} is no list of addresses: write ["host:port", ...]')
  by_index = {}
  for key, address in tasks.items():
    index = parse_index(key)
    if index is None:
      raise ClusterError(f"{source}: the index {key!r} is no number: count from 0")
    if index in by_index:
      raise ClusterError(f"{source}: the index {index} is given twice: give each task its own")
    by_index[index] = _text(address)
  return by_index


def parse_index(value) -> Optional[int]:
  """Returns an index that is a number or the text of one; None for anything else."""
  if isinstance(value, str) and re.fullmatch("-?[0-9]+", value):
    return int(value)
  return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value):
  """Returns bytes as text, which TensorFlow takes for names and addresses."""
  return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
