"""Refuses a job whose description cannot work, before anything starts.

TensorFlow accepts most of what is refused here and shows it later: as a hang, as an error at the
first update, or as an abort of the process (an index that is not there, one address for two tasks,
a job's name that no device can carry). Checked in this order:

  1. the jobs: named so that devices can carry the name, none of them empty, somebody who trains;
  2. their tasks: none with a negative index, each with a host and a port, no two with the same;
  3. this task: its job and its index exist;
  4. the workers of this job, and the ps where something needs one.

Each error names the value, where it was written, and what would be right.
"""

from __future__ import annotations

import difflib
import re
from typing import Iterable, Union

from tf1ps.cluster.address import ClusterError, parse_address
from tf1ps.cluster.view import EVALUATOR, Cluster

FLAGS = "flags"
CLUSTER_SPEC = "ClusterSpec"

# TensorFlow ends the process ("Invalid device name") for any other name.
_JOB_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# What jobs are called elsewhere. "master" becomes "chief" where there is no master.
_OTHER_NAMES = {
    "parameter_server": "ps", "parameterserver": "ps", "param_server": "ps", "pserver": "ps",
    "server": "ps", "trainer": "worker", "slave": "worker", "replica": "worker",
    "master": "chief", "leader": "chief", "eval": "evaluator", "validator": "evaluator",
}


class Origin:
  """Names the places where a user wrote something, for errors.

  Args:
    source: The `source` of a `Cluster`.
  """

  def __init__(self, source: str):
    self._source = source
    names = {FLAGS: ("--job_name", "--task_index"), CLUSTER_SPEC: ("job_name", "task_index")}
    self.job_name, self.task_index = names.get(
        source, (f"{source} task.type", f"{source} task.index"))

  def job(self, job: str) -> str:
    """Returns where the addresses of a job were written."""
    if self._source == FLAGS:
      return f"--{job}_hosts"
    return f"ClusterSpec {job}" if self._source == CLUSTER_SPEC else f"{self._source} cluster.{job}"

  def address(self, job: str, index: int) -> str:
    """Returns where one address was written."""
    return self.job(job) if self._source == FLAGS else f"{self.job(job)}[{index}]"


def _names(jobs):
  return ", ".join(sorted(jobs))


def nearest_name(name: str, known: Iterable[str]) -> str:
  """Returns the end of a sentence that refuses a name: the nearest known one, or all of them."""
  known = set(known)
  plain = name.lower().replace("-", "_")
  guess = _OTHER_NAMES.get(plain, plain)
  close = [guess] if guess in known else difflib.get_close_matches(guess, sorted(known), 1, 0.5)
  return f'did you mean "{close[0]}"?' if close else f"it is one of {_names(known)}"


def check_cluster(cluster: Cluster, needs_ps: Union[bool, str] = False) -> None:
  """Refuses everything in the description that cannot work.

  Args:
    cluster: The view to check.
    needs_ps: Whether there must be a ps; a text names what needs it, as "between_graph".

  Raises:
    ClusterError: With the first thing that is wrong.
  """
  origin = Origin(cluster.source)
  _check_jobs(cluster, origin)
  _check_tasks(cluster, origin)
  _check_this_task(cluster, origin)
  _check_job_workers(cluster, origin)
  if needs_ps and not cluster.ps:
    who = needs_ps if isinstance(needs_ps, str) else "this replication"
    raise ClusterError(f"{who} needs at least one ps: give {origin.job('ps')}")


def _check_jobs(cluster, origin):
  """The jobs: their names, that they have tasks, and that somebody trains."""
  for job in sorted(cluster.jobs, key=str):
    if not isinstance(job, str) or not _JOB_NAME.fullmatch(job):
      raise ClusterError(f"{origin.job(job)}: {job!r} is no name for a job: it begins with a "
                         "letter and goes on with letters, digits and underscores")
    if not cluster.jobs[job]:
      raise ClusterError(f"{origin.job(job)} has no tasks: give it an address, or leave it away")
  if not cluster.jobs:
    raise ClusterError(f"the cluster has no tasks: give {origin.job('worker')}")
  if list(cluster.jobs) == ["ps"] and cluster.source != CLUSTER_SPEC:
    raise ClusterError("the cluster has only ps and nobody who trains: give "
                       f"{origin.job('worker')}")
  for job in ("chief", "master"):
    if len(cluster.jobs.get(job, {})) > 1:
      raise ClusterError(f"{origin.job(job)} has {len(cluster.jobs[job])} tasks: a cluster has one "
                         "chief, make the others workers")


def _check_tasks(cluster, origin):
  """The tasks: their indices, their addresses, and that no two addresses are the same."""
  tasks = cluster.tasks()
  if EVALUATOR not in cluster.jobs:
    tasks += cluster.tasks(EVALUATOR)
  # A cluster of one task may let the system choose the port: nobody else has to find it.
  alone = len(cluster.tasks()) == 1
  seen = {}
  for task in tasks:
    where = origin.address(task.job, task.index)
    if task.index < 0:
      raise ClusterError(f"{where}: the index {task.index} is negative: count from 0")
    address = parse_address(task.address, where, allow_zero=alone)
    if address.port == 0:
      continue
    host = address.host.lower()
    place = ("localhost" if host in _LOOPBACK else host, address.port)
    if place in seen:
      other = seen[place]
      raise ClusterError(
          f"{where}: {task.address} of {task.name} is already the address of {other.name} "
          f"({origin.address(other.job, other.index)}): each task needs its own")
    seen[place] = task


def _check_this_task(cluster, origin):
  """This task: its job and its index."""
  job, index = cluster.job_name, cluster.task_index
  described = cluster.source != CLUSTER_SPEC  # by flags or TF_CONFIG, whose jobs have fixed names
  known_jobs = set(cluster.jobs) | ({EVALUATOR} if described else set())
  if job is None or job == "":
    raise ClusterError(f"{origin.job_name} is missing: it is one of {_names(known_jobs)}")
  if not isinstance(job, str):
    raise ClusterError(f"{origin.job_name}: {job!r} is no text: give the name of a job")
  if job not in known_jobs:
    if described and job in ("chief", "master", "worker", "ps"):
      raise ClusterError(f'{origin.job_name} is "{job}", but {origin.job(job)} is not given: give '
                         f"it, or be one of {_names(known_jobs)}")
    raise ClusterError(
      f'{origin.job_name}: there is no job "{job}": {nearest_name(job, known_jobs)}'
    )
  if index is None:
    raise ClusterError(f"{origin.task_index} is missing: give this task's index in its job, from 0")
  if isinstance(index, bool) or not isinstance(index, int):
    raise ClusterError(f"{origin.task_index}: {index!r} is no whole number: give this task's index "
                       "in its job, from 0")
  known = [task.index for task in cluster.tasks(job)] or [0]
  if index < 0:
    raise ClusterError(f"{origin.task_index}: {index} is negative: {_range(job, known)}")
  if index not in known:
    raise ClusterError(f"{origin.task_index}: {index} is out of range: {_range(job, known)}")


def _range(job, known):
  """Returns the sentence that tells the indices of a job."""
  if len(known) == 1:
    return f"the only {job} is {known[0]}"
  if known == list(range(len(known))):
    return f"the {job} tasks are 0 to {known[-1]}"
  return f"the {job} tasks are {', '.join(str(index) for index in known)}"


def _check_job_workers(cluster, origin):
  """The workers of this job: they exist, and this task is one of them if it is a worker."""
  if cluster.job_workers is None:
    return
  known = [task.index for task in cluster.tasks("worker")]
  if not known:
    raise ClusterError("--job_workers is given, but there are no workers: give "
                       f"{origin.job('worker')}, or leave it away")
  if not cluster.job_workers:
    raise ClusterError(f"--job_workers names no worker: {_range('worker', known)}")
  for index in cluster.job_workers:
    if index not in known:
      raise ClusterError(f"--job_workers: there is no worker {index}: {_range('worker', known)}")
  if cluster.job_name == "worker" and cluster.task_index not in cluster.job_workers:
    names = ", ".join(str(index) for index in cluster.job_workers)
    raise ClusterError(f"{origin.task_index}: worker {cluster.task_index} is not one of "
                       f"--job_workers, which names {names}: start it with the job it belongs to")
