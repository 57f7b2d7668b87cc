"""The description of a job: the entrance of this room, and the classic flags.

  description           made into a `Cluster` by
  --ps_hosts, ...       `from_flags`, here
  TF_CONFIG             `tf_config.from_tf_config`
  what Server accepts   `from_cluster_spec`
  flags and TF_CONFIG   `description.resolve_cluster`

Each of them returns a view that `check` has seen. The view itself stands in view.py.
"""

from __future__ import annotations

import re
from typing import List, Optional, Sequence, Tuple, Union

from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.checks import FLAGS, check_cluster
from tf1ps.cluster.from_spec import from_cluster_spec
from tf1ps.cluster.view import Cluster, Task

__all__ = ["Cluster", "ClusterError", "Task", "check_cluster", "from_cluster_spec", "from_flags",
           "parse_job_workers", "split_hosts"]

Hosts = Union[None, str, Sequence[str]]


def from_flags(ps_hosts: Hosts, worker_hosts: Hosts, chief_hosts: Hosts, evaluator_hosts: Hosts,
               job_name: str, task_index: int,
               job_workers: Union[None, str, Sequence[int]] = None) -> Cluster:
  """Makes the view of a job that was described with the classic flags.

  Args:
    ps_hosts: The addresses of the parameter servers, a text with commas or a list; None, "" and []
      all mean that there are none. The same holds for the other three.
    worker_hosts: The addresses of the workers.
    chief_hosts: The address of a chief beside the workers; without one, worker 0 is the chief.
    evaluator_hosts: The address of the evaluator, which nobody dials: it may be left away.
    job_name: This task's job: "ps", "worker", "chief" ("master" is its old name) or "evaluator".
    task_index: This task's index in its job.
    job_workers: The workers that belong to this job, as `parse_job_workers` takes them; None: all.

  Returns:
    A checked `Cluster`.

  Raises:
    ClusterError: For everything that `check` refuses.
  """
  named = {"ps": ps_hosts, "worker": worker_hosts, "chief": chief_hosts}
  jobs = {job: dict(enumerate(split_hosts(hosts)))
          for job, hosts in named.items() if split_hosts(hosts)}
  evaluators = dict(enumerate(split_hosts(evaluator_hosts)))
  job_name = "chief" if job_name == "master" else job_name
  cluster = Cluster(jobs, job_name, task_index, evaluators, parse_job_workers(job_workers), FLAGS)
  check_cluster(cluster)
  return cluster


def split_hosts(hosts: Hosts) -> List[str]:
  """Returns the addresses of a flag, without the blanks round its commas; [] for an absent one."""
  if hosts is None or isinstance(hosts, str):
    hosts = hosts.split(",") if hosts and hosts.strip() else []
  return [host.strip() if isinstance(host, str) else host for host in hosts]


def parse_job_workers(
    text: Union[None, str, Sequence[int]]) -> Optional[Tuple[int, ...]]:
  """Reads which workers belong to this job.

  Args:
    text: Indices and ranges, both ends included, as "0,2-4"; or the indices as numbers. None and ""
      mean all.

  Returns:
    The indices, ascending, or None for all.

  Raises:
    ClusterError: If a part is neither an index nor a range.
  """
  if text is None or text == "":
    return None
  if not isinstance(text, str):
    return tuple(sorted(set(text)))
  indices = set()
  for part in text.split(","):
    # Five digits are more workers than ports; a slip of the finger must not fill the memory.
    match = re.fullmatch(r"\s*([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?\s*", part)
    if not match:
      raise ClusterError(f'--job_workers: "{part}" of "{text}" is neither an index nor a range: '
                         'write "2-3" or "0,2-4"')
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    if first > last:
      raise ClusterError(f'--job_workers: the range "{part.strip()}" goes down: write '
                         f'"{last}-{first}"')
    indices.update(range(first, last + 1))
  return tuple(sorted(indices))
