"""The normalised view of a job: its tasks, and which of them this one is.

Whatever a job was described with (flags, TF_CONFIG, a ClusterSpec), the rest of the program sees
one `Cluster`. It answers the questions that the rooms above ask:

  who runs a server        `jobs`, `tasks`, `ps`, `find`, `cluster_spec`
  who am I                 `task`, `is_chief`, `replica_index`
  who trains               `replicas`, `num_replicas`; the `chief` is the one that initialises
  where are heartbeats     `control_task`
  is yours the same        `digest`, `to_json`, `differences`

A `Cluster` may describe nonsense until `check_cluster` has seen it; every function that makes one
(see spec.py) has it checked. It must not be changed once it is made.
"""

from __future__ import annotations

import hashlib
import json
from typing import Dict, List, NamedTuple, Optional, Tuple

from tf1ps.cluster.address import ClusterError

EVALUATOR = "evaluator"


class Task(NamedTuple):
  """One task of a job."""
  job: str
  index: int
  address: str  # "host:port"; empty for an evaluator that was given none

  @property
  def name(self) -> str:
    """The task as TensorFlow names it in devices and filters: "/job:ps/task:0"."""
    return f"/job:{self.job}/task:{self.index}"


class Cluster(NamedTuple):
  """All tasks of a job, and which of them this process is."""
  jobs: Dict[str, Dict[int, str]]  # job -> task index -> address, of the tasks that run servers
  job_name: str  # this task's job; may be "evaluator"
  task_index: int  # this task's index in its job
  evaluators: Dict[int, str] = {}  # task index -> address; often empty, as nobody dials them
  job_workers: Optional[Tuple[int, ...]] = None  # the workers that belong to this job; None: all
  source: str = "flags"  # what the view was made from: "flags", "TF_CONFIG", "ClusterSpec", ...

  def tasks(self, job: Optional[str] = None) -> List[Task]:
    """Returns the tasks of one job (none if there is no such job), or all that run servers."""
    if job is None:
      return [task for name in sorted(self.jobs) for task in self.tasks(name)]
    addresses = self.jobs.get(job)
    if addresses is None and job == EVALUATOR:
      addresses = self.evaluators
    return [Task(job, index, address) for index, address in sorted((addresses or {}).items())]

  def find(self, job: str, index: int) -> Task:
    """Returns one task.

    Raises:
      ClusterError: If the cluster has no such task.
    """
    for task in self.tasks(job):
      if task.index == index:
        return task
    known = ", ".join(task.name for task in self.tasks())
    raise ClusterError(f"there is no /job:{job}/task:{index} in the cluster, which has {known}")

  @property
  def task(self) -> Task:
    """This task."""
    if self.job_name == EVALUATOR and not self.tasks(EVALUATOR):
      return Task(EVALUATOR, self.task_index, "")
    return self.find(self.job_name, self.task_index)

  @property
  def ps(self) -> List[Task]:
    """The parameter servers, by index."""
    return self.tasks("ps")

  @property
  def chief(self) -> Task:
    """The task that initialises and saves.

    The chief job's task if there is such a job ("master" is its old name), else the lowest worker
    of this job, else the lowest task of the first other job.
    """
    return (self.tasks(self._chief_job()) or self._workers() or self.tasks(self._other_job()))[0]

  @property
  def is_chief(self) -> bool:
    """Whether this task is the chief."""
    return self.task == self.chief

  @property
  def replicas(self) -> List[Task]:
    """The tasks that train: the chief job's task first if there is one, then this job's workers."""
    trainers = self.tasks(self._chief_job())[:1] + self._workers()
    return trainers or self.tasks(self._other_job())

  @property
  def num_replicas(self) -> int:
    """How many tasks train."""
    return len(self.replicas)

  @property
  def replica_index(self) -> Optional[int]:
    """This task's place among the replicas, from 0; None if it does not train."""
    names = [task.name for task in self.replicas]
    return names.index(self.task.name) if self.task.name in names else None

  @property
  def control_task(self) -> Task:
    """The task that keeps run, heartbeats and done-queues: the lowest ps, without ps the chief."""
    return self.ps[0] if self.ps else self.chief

  def _chief_job(self):
    return "master" if "master" in self.jobs and "chief" not in self.jobs else "chief"

  def _workers(self):
    return [task for task in self.tasks("worker")
            if self.job_workers is None or task.index in self.job_workers]

  def _other_job(self):
    """The job that trains in a cluster without chief and worker, such as {"local": [...]}."""
    return min(self.jobs, key=lambda job: (job == "ps", job))

  def cluster_spec(self):
    """Returns the `tf.train.ClusterSpec` that servers are started with, without the evaluator."""
    import tensorflow.compat.v1 as tf  # late: a command line answers before TensorFlow is there
    return tf.train.ClusterSpec(self.jobs)

  def to_json(self) -> Dict[str, Dict[str, str]]:
    """Returns the jobs as what JSON can carry: job -> index as text -> address."""
    return {job: {str(task.index): task.address for task in self.tasks(job)}
            for job in sorted(self.jobs)}

  def digest(self) -> str:
    """Returns 12 hexadecimal digits, the same in all tasks that were given the same jobs."""
    text = json.dumps(self.to_json(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]

  def differences(self, other_jobs: Dict[str, Dict[str, str]]) -> List[str]:
    """Tells in which tasks another description differs from this one.

    Args:
      other_jobs: What the other task's `to_json` returned.

    Returns:
      A sentence for each task that differs, by job and index; nothing if all are the same.
    """
    here = {(task.job, task.index): task.address for task in self.tasks()}
    there = {(job, int(index)): address
             for job, tasks in other_jobs.items() for index, address in tasks.items()}
    sentences = []
    for job, index in sorted(set(here) | set(there)):
      mine, other = here.get((job, index)), there.get((job, index))
      if other is None:
        sentences.append(f"there is no {job} {index} there ({mine} here)")
      elif mine is None:
        sentences.append(f"there is no {job} {index} here ({other} there)")
      elif mine != other:
        sentences.append(f"{job} {index} is {mine} here and {other} there")
    return sentences

  def describe(self) -> str:
    """Returns the view as text: a line a job, then the line of this task."""
    jobs = sorted(self.jobs) + ([EVALUATOR] if self.evaluators else [])
    lines = [f"{job}: {_addresses(self.tasks(job))}" for job in jobs]
    if self.job_workers is not None:
      lines.append("workers of this job: " + ", ".join(str(index) for index in self.job_workers))
    role = "the chief" if self.is_chief else f"chief is {self.chief.name}"
    lines.append(f"this task: {self.task.name} ({role}), from {self.source}")
    return "\n".join(lines)


def _addresses(tasks):
  """Returns the addresses of one job, with their indices where these have gaps."""
  if [task.index for task in tasks] == list(range(len(tasks))):
    return ", ".join(task.address for task in tasks)
  return ", ".join(f"{task.index} is {task.address}" for task in tasks)
