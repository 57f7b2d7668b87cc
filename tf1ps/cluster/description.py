"""A job's cluster: its tasks, and the task that this process is.

Flags, TF_CONFIG and a ClusterSpec all become a `Cluster` (see parsing.py). The constructor checks
the `Cluster`, so that every other function can rely on it. The checks run in this order:

  1. the jobs: devices can carry their names, no job is empty, a job trains;
  2. their tasks: no negative index, a host and a port for each, no address twice;
  3. this task: its job and its index exist;
  4. the workers of this job.

TensorFlow accepts most of these mistakes, which show only later: as a hang, as an error at the
first update, or as an abort of the process. It also takes a port above 65535 modulo 65536. Each
error here names the value, the place where the value was written, and the right form.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import ipaddress
import json
import re
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from tf1ps.compat import Error

EVALUATOR = "evaluator"

# The values of `Cluster.source` that change the texts of errors.
FLAGS = "flags"
CLUSTER_SPEC = "ClusterSpec"

_MAX_PORT = 65535
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
# For any other name TensorFlow ends the process ("Invalid device name").
_JOB_NAME = re.compile("[A-Za-z][A-Za-z0-9_]*")
# Names that other systems use. "master" becomes "chief" in a cluster without a master.
_OTHER_NAMES = {
  "parameter_server": "ps", "parameterserver": "ps", "param_server": "ps", "pserver": "ps",
  "server": "ps", "trainer": "worker", "slave": "worker", "replica": "worker",
  "master": "chief", "leader": "chief", "eval": "evaluator", "validator": "evaluator",
}


class ClusterError(Error, ValueError):
  """The description of the cluster is wrong; the message names the wrong value and a right form."""


class Address(NamedTuple):
  """The parts of an address."""

  host: str  # a host's name, an IPv4 address, or an IPv6 address without its brackets
  port: int  # 0 lets the system choose

  @property
  def machine(self) -> str:
    """The host in lower case; "localhost" for each loopback name and address."""
    host = self.host.lower()
    return "localhost" if host in _LOOPBACK else host


class Task(NamedTuple):
  """A task of a job."""

  job: str
  index: int  # type: ignore[assignment]  # in place of tuple.index
  address: str  # "host:port"; empty for an evaluator without an address

  @property
  def name(self) -> str:
    """The task as TensorFlow names it in devices and filters: "/job:ps/task:0"."""
    return f"/job:{self.job}/task:{self.index}"


@dataclasses.dataclass(frozen=True)
class Cluster:
  """All tasks of a job, and the task that this process is.

  Attributes:
    jobs: {job: {task index: address}} for the tasks that run servers. It is empty for an evaluator
      whose description names no other task.
    job_name: this task's job; it may be "evaluator".
    task_index: this task's index in its job.
    evaluators: {task index: address}; often empty, because no task connects to an evaluator.
    job_workers: the indices of the workers that belong to this job; None: all workers.
    source: the place of the description, for errors: "flags", "TF_CONFIG", "ClusterSpec".

  Raises:
    ClusterError: a cluster with this description cannot work.
  """

  jobs: Dict[str, Dict[int, str]]
  job_name: str
  task_index: int
  evaluators: Dict[int, str] = dataclasses.field(default_factory=dict)
  job_workers: Optional[Tuple[int, ...]] = None
  source: str = CLUSTER_SPEC

  def __post_init__(self):
    origin = Origin(self.source)
    _check_jobs(self, origin)
    _check_tasks(self, origin)
    _check_this_task(self, origin)
    _check_job_workers(self, origin)

  def tasks(self, job: Optional[str] = None) -> List[Task]:
    """Returns the tasks of a job ([] for an unknown job), or all tasks that run servers."""
    if job is None:
      return [task for name in sorted(self.jobs) for task in self.tasks(name)]
    addresses = self.jobs.get(job)
    if addresses is None and job == EVALUATOR:
      addresses = self.evaluators
    return [Task(job, index, address) for index, address in sorted((addresses or {}).items())]

  def find(self, job: str, index: int) -> Task:
    """Returns a task; raises ClusterError if the cluster has no such task."""
    for task in self.tasks(job):
      if task.index == index:
        return task
    known = ", ".join(task.name for task in self.tasks())
    raise ClusterError(f"the cluster has no /job:{job}/task:{index}, only {known}")

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

    It is the task of the chief or master job, if there is such a job; else the worker of this job
    with the lowest index; else the task with the lowest index of the first other job.

    Raises:
      ClusterError: the cluster has no tasks, because it describes only an evaluator.
    """
    if not self.jobs:
      raise ClusterError("the cluster has no chief, because it names only the evaluator: give "
                         f"{Origin(self.source).job('worker')}")
    return (self.tasks(self._chief_job()) or self._workers() or self.tasks(self._other_job()))[0]

  @property
  def is_chief(self) -> bool:
    """Whether this task is the chief."""
    return bool(self.jobs) and self.task == self.chief

  @property
  def replicas(self) -> List[Task]:
    """The tasks that train: the task of a chief job, if any, then the workers of this job."""
    trainers = self.tasks(self._chief_job())[:1] + self._workers()
    return trainers or self.tasks(self._other_job())

  def tasks_on_this_host(self) -> List[Task]:
    """Returns the tasks whose addresses have this task's host, including this task."""
    mine = _machine_of(self.task)
    return [task for task in self.tasks()
            if task.name == self.task.name or mine and _machine_of(task) == mine]

  @property
  def num_replicas(self) -> int:
    """The number of tasks that train."""
    return len(self.replicas)

  @property
  def replica_index(self) -> Optional[int]:
    """This task's place among the replicas, from 0; None if it does not train."""
    names = [task.name for task in self.replicas]
    return names.index(self.task.name) if self.task.name in names else None

  @property
  def control_task(self) -> Task:
    """The task that keeps run, heartbeats, done queues: the first ps, or without ps the chief."""
    return self.ps[0] if self.ps else self.chief

  def _chief_job(self):
    return "master" if "master" in self.jobs and "chief" not in self.jobs else "chief"

  def _workers(self):
    return [task for task in self.tasks("worker")
            if self.job_workers is None or task.index in self.job_workers]

  def _other_job(self):
    """Returns the job that trains if there is no chief or worker job, such as "local"."""
    return min(self.jobs, key=lambda job: (job == "ps", job))

  def cluster_spec(self):
    """Returns the `tf.train.ClusterSpec` to start servers with, without the evaluator."""
    import tensorflow.compat.v1 as tf  # late: a command line answers before TensorFlow is there
    return tf.train.ClusterSpec(self.jobs)

  def to_json(self) -> Dict[str, Dict[str, str]]:
    """Returns the jobs for JSON: {job: {index as text: address}}."""
    return {job: {str(task.index): task.address for task in self.tasks(job)}
            for job in sorted(self.jobs)}

  def digest(self) -> str:
    """Returns 12 hexadecimal digits, which are the same in all tasks with the same jobs."""
    text = json.dumps(self.to_json(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]

  def differences(self, other_jobs: Dict[str, Dict[str, str]]) -> List[str]:
    """Returns a sentence per task that differs from another task's `to_json`, by job and index."""
    here = {(task.job, task.index): task.address for task in self.tasks()}
    there = {(job, int(index)): address
             for job, tasks in other_jobs.items() for index, address in tasks.items()}
    sentences = []
    for job, index in sorted(set(here) | set(there)):
      mine, other = here.get((job, index)), there.get((job, index))
      if other is None:
        sentences.append(f"{job} {index} is {mine} here and missing there")
      elif mine is None:
        sentences.append(f"{job} {index} is missing here and {other} there")
      elif mine != other:
        sentences.append(f"{job} {index} is {mine} here and {other} there")
    return sentences

  def describe(self) -> str:
    """Returns the cluster as text: a line per job, then the line of this task."""
    jobs = sorted(self.jobs) + ([EVALUATOR] if self.evaluators else [])
    lines = [f"{job}: {_addresses(self.tasks(job))}" for job in jobs]
    if self.job_workers is not None:
      lines.append("workers of this job: " + ", ".join(str(index) for index in self.job_workers))
    if not self.jobs:
      lines.append(f"{self.source} names no task that trains: this evaluator needs only the "
                   "checkpoint directory")
      return "\n".join([*lines, f"this task: {self.task.name}, from {self.source}"])
    role = "the chief" if self.is_chief else f"chief is {self.chief.name}"
    lines.append(f"this task: {self.task.name} ({role}), from {self.source}")
    return "\n".join(lines)


def _addresses(tasks):
  """Returns the addresses of a job, with their indices if the indices have gaps."""
  if [task.index for task in tasks] == list(range(len(tasks))):
    return ", ".join(task.address for task in tasks)
  return ", ".join(f"{task.index} is {task.address}" for task in tasks)


def _machine_of(task: Task) -> str:
  """The machine of a task; "" for an evaluator without an address."""
  return parse_address(task.address, task.name, allow_zero=True).machine if task.address else ""


def parse_address(text: str, source: str, allow_zero: bool = False) -> Address:
  """Splits a "host:port" address into its parts.

  Args:
    text: the address. An IPv6 host is in brackets: "[::1]:2222".
    source: the place of the address, for the error: "--ps_hosts", "TF_CONFIG cluster.ps[0]".
    allow_zero: whether port 0 is allowed, for which the system chooses a free port.

  Raises:
    ClusterError: the text is not a host and a port.
  """
  if not isinstance(text, str):
    raise ClusterError(f'{source}: {text!r} is not a string: write "host:port"')
  if not text:
    raise ClusterError(
      f"{source}: an address is empty: write host:port, with a comma between addresses")
  if re.search(r"\s", text):
    raise ClusterError(f"{source}: {text!r} has a blank in it: write host:port without blanks")
  if "://" in text:
    address = text.split("://", 1)[1].split("/", 1)[0]
    raise ClusterError(f'{source}: "{text}" is a URL: write the address alone, "{address}"')
  if "/" in text:
    raise ClusterError(f'{source}: "{text}" has a "/" in it: write host:port')
  host, port = _split_address(text, source)
  if not host:
    raise ClusterError(f'{source}: "{text}" has no host: write host:port, as in "localhost{text}"')
  return Address(host, _parse_port(port, text, source, allow_zero))


def _split_address(text, source):
  """Splits the text into a host without brackets and the text of a port."""
  if text.startswith("["):
    host, bracket, remainder = text[1:].partition("]")
    if not bracket or not _is_ipv6(host):
      raise ClusterError(f'{source}: "{text}" is not an IPv6 address in brackets: write '
                         '"[::1]:2222"')
    if not remainder.startswith(":"):
      raise ClusterError(f'{source}: "{text}" has no port: write "[{host}]:2222"')
    return host, remainder[1:]
  if text.count(":") > 1:
    if _is_ipv6(text):
      raise ClusterError(f'{source}: "{text}" is an IPv6 address without brackets or a port: '
                         f'write "[{text}]:2222"')
    raise ClusterError(f'{source}: "{text}" has more than one ":": write host:port, with commas '
                       "between addresses and an IPv6 host in brackets")
  host, colon, port = text.partition(":")
  if not colon:
    raise ClusterError(f'{source}: "{text}" has no port: write host:port, as in "{text}:2222"')
  return host, port


def _is_ipv6(host):
  try:
    ipaddress.IPv6Address(host.partition("%")[0])  # the name of an interface may follow "%"
  except ValueError:
    return False
  return True


def _parse_port(port, text, source, allow_zero):
  if not port:
    raise ClusterError(f'{source}: "{text}" has no port: write host:port, as in "{text}2222"')
  if not re.fullmatch("[0-9]+", port):
    raise ClusterError(f'{source}: the port of "{text}" is not a number: write host:port with '
                       f"a port from 1 to {_MAX_PORT}")
  number = int(port)
  if number > _MAX_PORT:
    raise ClusterError(f'{source}: the port of "{text}" is above {_MAX_PORT} (TensorFlow would '
                       f"listen on {number % (_MAX_PORT + 1)}): give a port from 1 to {_MAX_PORT}")
  if number == 0 and not allow_zero:
    raise ClusterError(f'{source}: the port of "{text}" is 0, so that the system would choose a '
                       f"port that no other task knows: give a port from 1 to {_MAX_PORT}")
  return number


class Origin:
  """The places where a user wrote the parts of a description, for errors.

  `source` is the `source` of a `Cluster`.
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
    """Returns where an address was written."""
    return self.job(job) if self._source == FLAGS else f"{self.job(job)}[{index}]"


def _names(jobs):
  return ", ".join(sorted(jobs))


def nearest_name(name: str, known: Iterable[str]) -> str:
  """Returns the end of an error about an unknown name: the nearest known name, or all names."""
  known = set(known)
  plain = name.lower().replace("-", "_")
  guess = _OTHER_NAMES.get(plain, plain)
  close = [guess] if guess in known else difflib.get_close_matches(guess, sorted(known), 1, 0.5)
  return f'did you mean "{close[0]}"?' if close else f"give one of {_names(known)}"


def _check_jobs(cluster, origin):
  """Checks the jobs: their names, that each has tasks, and that a job trains."""
  for job in sorted(cluster.jobs, key=str):
    if not isinstance(job, str) or not _JOB_NAME.fullmatch(job):
      raise ClusterError(f"{origin.job(job)}: {job!r} is not a job name: it begins with a letter "
                         "and contains letters, digits and underscores")
    if not cluster.jobs[job]:
      raise ClusterError(f"{origin.job(job)} has no tasks: give it an address, or leave it out")
  evaluator_alone = cluster.job_name == EVALUATOR and cluster.source not in (FLAGS, CLUSTER_SPEC)
  if not cluster.jobs and not evaluator_alone:
    raise ClusterError(f"the cluster has no tasks: give {origin.job('worker')}")
  if list(cluster.jobs) == ["ps"] and cluster.source != CLUSTER_SPEC:
    raise ClusterError("the cluster has only ps and no task that trains: give "
                       f"{origin.job('worker')}")
  for job in ("chief", "master"):
    if len(cluster.jobs.get(job, {})) > 1:
      raise ClusterError(f"{origin.job(job)} has {len(cluster.jobs[job])} tasks: a cluster has one "
                         "chief, make the others workers")


def _check_tasks(cluster, origin):
  """Checks the tasks: their indices, their addresses, and that no two addresses are the same."""
  tasks = cluster.tasks()
  if EVALUATOR not in cluster.jobs:
    tasks += cluster.tasks(EVALUATOR)
  # In a cluster of one task the system may choose the port: no other task has to know the port.
  alone = len(cluster.tasks()) == 1
  seen = {}
  for task in tasks:
    where = origin.address(task.job, task.index)
    if task.index < 0:
      raise ClusterError(f"{where}: the index {task.index} is negative: count from 0")
    address = parse_address(task.address, where, allow_zero=alone)
    if address.port == 0:
      continue
    place = (address.machine, address.port)
    if place in seen:
      other = seen[place]
      raise ClusterError(
        f"{where}: {task.address} of {task.name} is already the address of {other.name} "
        f"({origin.address(other.job, other.index)}): each task needs its own")
    seen[place] = task


def _check_this_task(cluster, origin):
  job, index = cluster.job_name, cluster.task_index
  described = cluster.source != CLUSTER_SPEC  # by flags or TF_CONFIG, whose jobs have fixed names
  known_jobs = set(cluster.jobs) | ({EVALUATOR} if described else set())
  if job is None or job == "":
    raise ClusterError(f"{origin.job_name} is missing: give one of {_names(known_jobs)}")
  if not isinstance(job, str):
    raise ClusterError(f"{origin.job_name}: {job!r} is not a string: give the name of a job")
  if job not in known_jobs:
    if described and job in ("chief", "master", "worker", "ps"):
      raise ClusterError(f'{origin.job_name} is "{job}", but {origin.job(job)} is not given: give '
                         f"it, or use one of {_names(known_jobs)}")
    raise ClusterError(f'{origin.job_name}: "{job}" is not a job: {nearest_name(job, known_jobs)}')
  if index is None:
    raise ClusterError(f"{origin.task_index} is missing: give this task's index in its job, from 0")
  if isinstance(index, bool) or not isinstance(index, int):
    raise ClusterError(f"{origin.task_index}: {index!r} is not an integer: give this task's index "
                       "in its job, from 0")
  known = [task.index for task in cluster.tasks(job)] or [0]
  if index < 0:
    raise ClusterError(f"{origin.task_index}: {index} is negative: {_range(job, known)}")
  if index not in known:
    raise ClusterError(f"{origin.task_index}: {index} is out of range: {_range(job, known)}")


def _range(job, known):
  """Returns the part of an error that lists the indices of a job."""
  if len(known) == 1:
    return f"the only {job} is {known[0]}"
  if known == list(range(len(known))):
    return f"the {job} tasks are 0 to {known[-1]}"
  return f"the {job} tasks are {', '.join(str(index) for index in known)}"


def _check_job_workers(cluster, origin):
  """Checks the workers of this job: they exist, and this task, if a worker, is among them."""
  if cluster.job_workers is None:
    return
  known = [task.index for task in cluster.tasks("worker")]
  if not known:
    raise ClusterError("--job_workers is given, but the cluster has no workers: give "
                       f"{origin.job('worker')}, or leave it out")
  if not cluster.job_workers:
    raise ClusterError(f"--job_workers names no worker: {_range('worker', known)}")
  for index in cluster.job_workers:
    if index not in known:
      raise ClusterError(f"--job_workers: worker {index} does not exist: {_range('worker', known)}")
  if cluster.job_name == "worker" and cluster.task_index not in cluster.job_workers:
    names = ", ".join(str(index) for index in cluster.job_workers)
    raise ClusterError(f"{origin.task_index}: worker {cluster.task_index} is not in --job_workers, "
                       f"which names {names}: start it with the job it belongs to")
