"""The file of hosts of `tf1ps-ssh`: the tasks of a job, and the machines that run them.

Each line has a host, as `ssh HOST` takes it, and the tasks on it. Indices count in the order of the
file. `#` begins a comment.

    node1        ps
    node2        worker          # the chief is the first worker
    me@node3     worker*2        # two workers; slots=2 and a line without a task mean workers, too
    node4        evaluator
    gateway5     worker address=10.0.0.5
"""

from __future__ import annotations

import re
from typing import Dict, List, NamedTuple

from tf1ps.cluster import EVALUATOR, make_tf_config
from tf1ps.compat import Error

_TASK = re.compile(r"(ps|worker|evaluator)(?:\*0*([1-9]\d*))?$")
_SLOTS = re.compile(r"slots=0*([1-9]\d*)$")
_ADDRESS = re.compile(r"address=([\w.-]+)$")


class HostsError(Error, ValueError):
  """A file of hosts cannot be read, or describes no job."""


class HostTask(NamedTuple):
  """A task and its machine."""

  job: str  # "ps", "worker" or "evaluator"
  index: int
  host: str  # for the ssh client: "me@node3"
  address: str  # where the other tasks reach it: "node3:2222"; that of an evaluator is not used

  @property
  def name(self) -> str:
    """Its name in the output: "worker 1"."""
    return "%s %d" % (self.job, self.index)


def read_hosts(path: str, port: int) -> List[HostTask]:
  """Reads the tasks of a job; they are in the order ps, worker, evaluator.

  Args:
    path: of the file.
    port: of the first task on each machine; the further ones count up.

  Raises:
    HostsError: the file cannot be read, or describes no job.
  """
  try:
    with open(path, encoding="utf-8") as file:
      lines = file.read().splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise HostsError("the file of hosts %s cannot be read: %s" % (
      path, getattr(error, "strerror", None) or error)) from error
  found: Dict[str, List[HostTask]] = {"ps": [], "worker": [], EVALUATOR: []}
  ports: Dict[str, int] = {}
  for number, line in enumerate(lines, 1):
    host, *words = line.partition("#")[0].split() or [""]
    if not host:
      continue
    if host.startswith("-"):
      raise HostsError("%s:%d: %r is no host" % (path, number, host))
    jobs, address = _jobs_of(words, "%s:%d" % (path, number))
    address = address or host.rpartition("@")[2]
    for job in jobs:
      used = ports.get(address, port)
      found[job].append(HostTask(job, len(found[job]), host, "%s:%d" % (address, used)))
      if job != EVALUATOR:
        ports[address] = used + 1
  if not found["worker"]:
    raise HostsError("%s has no worker: add a line such as `node2 worker`" % path)
  if len(found[EVALUATOR]) > 1:
    raise HostsError("%s has %d evaluators: a job has one" % (path, len(found[EVALUATOR])))
  if max(ports.values()) > 65536:
    raise HostsError("--port=%d leaves too few ports for %s" % (port, max(ports, key=ports.get)))
  return [task for tasks in found.values() for task in tasks]


def _jobs_of(words, where):
  """Returns the jobs of the tasks of a line, and the address in it or ""."""
  jobs, address = [], ""
  for word in words:
    task, slots, given = _TASK.match(word), _SLOTS.match(word), _ADDRESS.match(word)
    if task:
      jobs += [task.group(1)] * int(task.group(2) or 1)
    elif slots:
      jobs += ["worker"] * int(slots.group(1))
    elif given:
      address = given.group(1)
    else:
      raise HostsError("%s: %r is not known: give ps, worker, evaluator, worker*N, slots=N or "
                       "address=HOST" % (where, word))
  has_number = any(not word.startswith("address=") for word in words)
  return (jobs if has_number else ["worker"]), address


def addresses_of(tasks: List[HostTask], job: str) -> List[str]:
  """Returns the addresses of the tasks of a job."""
  return [task.address for task in tasks if task.job == job]


def tf_config_of(tasks: List[HostTask], task: HostTask) -> str:
  """Returns the TF_CONFIG of a task, as Kubeflow writes it: an evaluator is not in the cluster."""
  return make_tf_config(
    {job: addresses_of(tasks, job) for job in ("ps", "worker")}, task.job, task.index)


def command_of(command: List[str], tasks: List[HostTask], task: HostTask) -> List[str]:
  """Returns the command of a task: {job}, {index}, {ps_hosts} and {worker_hosts} are replaced."""
  values = {"{job}": task.job, "{index}": str(task.index),
            "{ps_hosts}": ",".join(addresses_of(tasks, "ps")),
            "{worker_hosts}": ",".join(addresses_of(tasks, "worker"))}
  pattern = re.compile("|".join(map(re.escape, values)))
  return [pattern.sub(lambda match: values[match.group()], word) for word in command]
