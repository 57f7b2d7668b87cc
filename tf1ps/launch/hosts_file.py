"""The file of hosts of `tf1ps-ssh`: the tasks of a job, and the machines that run them.

Each line has a host, as `ssh HOST` accepts it, and the tasks on this host. Indices count in the
order of the file. `#` begins a comment.

    node1        ps
    node2        worker          # the chief is the first worker
    me@node3     worker*2        # two workers; slots=2 and a line without a task mean workers, too
    node4        evaluator
    gateway5     worker address=10.0.0.5
"""

from __future__ import annotations

import re
from typing import Dict, List

from tf1ps.cluster import EVALUATOR
from tf1ps.compat import Error
from tf1ps.launch.job import Task, addresses_of

_TASK = re.compile(r"(ps|worker|evaluator)(?:\*0*([1-9][0-9]*))?$")
_SLOTS = re.compile(r"slots=0*([1-9][0-9]*)$")
_ADDRESS = re.compile(r"address=([\w.-]+)$")
_DIGITS = 5  # the digits of a number of tasks that are read; five digits are already too many tasks
_MOST_TASKS = 4096  # more tasks do not fit into ssh's argument with TF_CONFIG, of at most 128 KiB


class HostsError(Error, ValueError):
  """A file of hosts cannot be read, or describes no job."""


def read_hosts(path: str, port: int) -> List[Task]:
  """Reads the tasks of a job; they are in the order ps, worker, evaluator.

  Args:
    path: the path of the file.
    port: the port of the first task on each machine; the other tasks' ports count up from it.

  Raises:
    HostsError: the file cannot be read, or describes no job.
  """
  try:
    with open(path, encoding="utf-8") as file:
      lines = file.read().splitlines()
  except (OSError, UnicodeDecodeError) as error:
    raise HostsError("the file of hosts %s cannot be read: %s" % (
      path, getattr(error, "strerror", None) or error)) from error
  tasks: Dict[str, List[Task]] = {"ps": [], "worker": [], EVALUATOR: []}
  ports: Dict[str, int] = {}
  for number, line in enumerate(lines, 1):
    host, *words = line.partition("#")[0].split() or [""]
    if not host:
      continue
    if host.startswith("-"):
      raise HostsError("%s:%d: %r is not a host" % (path, number, host))
    jobs, address = _jobs_of(words, "%s:%d" % (path, number))
    address = address or host.rpartition("@")[2]
    if len(jobs) + sum(map(len, tasks.values())) > _MOST_TASKS:
      raise HostsError("%s:%d: a job has at most %d tasks, and with this line there are more" % (
        path, number, _MOST_TASKS))
    for job in jobs:
      used = ports.get(address, port)
      tasks[job].append(Task(job, len(tasks[job]), "%s:%d" % (address, used), host))
      if job != EVALUATOR:
        ports[address] = used + 1
  if not tasks["worker"]:
    raise HostsError("%s has no worker: add a line such as `node2 worker`" % path)
  if len(tasks[EVALUATOR]) > 1:
    raise HostsError("%s has %d evaluators: give one line with `evaluator`" % (
      path, len(tasks[EVALUATOR])))
  if max(ports.values()) > 65536:
    raise HostsError("--port=%d leaves too few ports for %s" % (port, max(ports, key=ports.get)))
  return sum(tasks.values(), [])


def _jobs_of(words, where):
  """Returns the jobs of the tasks of a line, and the line's address or ""."""
  jobs, address = [], ""
  for word in words:
    task, slots, given = _TASK.match(word), _SLOTS.match(word), _ADDRESS.match(word)
    if task:
      jobs += [task.group(1)] * int((task.group(2) or "1")[:_DIGITS])
    elif slots:
      jobs += ["worker"] * int(slots.group(1)[:_DIGITS])
    elif given:
      address = given.group(1)
    else:
      raise HostsError("%s: %r is not known: give ps, worker, evaluator, worker*N, slots=N or "
                       "address=HOST" % (where, word))
  has_number = any(not word.startswith("address=") for word in words)
  return (jobs if has_number else ["worker"]), address


def command_of(command: List[str], tasks: List[Task], task: Task) -> List[str]:
  """Returns the command of a task: {job}, {index}, {ps_hosts} and {worker_hosts} are replaced."""
  values = {"{job}": task.job, "{index}": str(task.index),
            "{ps_hosts}": ",".join(addresses_of(tasks, "ps")),
            "{worker_hosts}": ",".join(addresses_of(tasks, "worker"))}
  pattern = re.compile("|".join(map(re.escape, values)))
  return [pattern.sub(lambda match: values[match.group()], word) for word in command]
