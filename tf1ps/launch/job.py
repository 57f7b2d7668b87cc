"""The descriptions of a job and of its tasks' processes, which every way to start a job uses.

1. A `Task` is a place in the cluster. `describe_tasks` makes the tasks of a job from numbers, and
   `hosts_file.read_hosts` makes them from a file. The tasks determine names, order, flags and
   TF_CONFIG, even in the files of tf1ps-deploy.
2. A `Job` has the objects that a `Backend` starts for these tasks, the number of restarts, and the
   limits of the tasks' ends.
3. `watch.Watch` runs a `Job` on a `Backend`: `fork_server.ForkServer`, or the hosts of ssh.py.
"""

from __future__ import annotations

import socket
import time
from typing import Any, List, NamedTuple, Optional, Sequence

from tf1ps.cluster import EVALUATOR, make_tf_config
from tf1ps.compat import (
  ENDING_SIGNALS,
  EXIT_FAILED,
  EXIT_PORT_TAKEN,
  EXIT_REFUSED,
  EXIT_RELEASED,
  signal_exit_code,
  signal_name,
)

_SIGNALLED = frozenset(
  code for number in ENDING_SIGNALS for code in (-number, signal_exit_code(number)))


class Task(NamedTuple):
  """A task of a job, and its machine."""

  job: str  # "ps", "worker" or "evaluator"
  index: int
  address: str = ""  # where other tasks reach it: "node3:2222"; unused for an evaluator
  host: str = ""  # for the ssh client: "me@node3"

  @property
  def name(self) -> str:
    """The task's name in the output: "worker 1"."""
    return "%s %d" % (self.job, self.index)

  @property
  def flags(self) -> List[str]:
    """The flags of a program of tf1ps that say which task it is."""
    return ["--job_name=" + self.job] + ["--task_index=%d" % self.index] * (self.job != EVALUATOR)


def describe_tasks(num_ps: int, num_workers: int, evaluator: bool = False,
                   addresses: Sequence[str] = ()) -> List[Task]:
  """Returns the tasks of a job in their order: ps, workers, evaluator.

  `addresses` has the addresses of the ps and then of the workers. It is empty if a scheduler
  chooses the addresses.
  """
  places = [("ps", i) for i in range(num_ps)] + [("worker", i) for i in range(num_workers)]
  given = list(addresses) or [""] * len(places)
  tasks = [Task(job, index, address) for (job, index), address in zip(places, given)]
  return tasks + [Task(EVALUATOR, 0)] * evaluator


def addresses_of(tasks: Sequence[Task], job: str) -> List[str]:
  """Returns the addresses of the tasks of a job."""
  return [task.address for task in tasks if task.job == job]


def cluster_flags(tasks: Sequence[Task]) -> List[str]:
  """Returns the flags of a program of tf1ps that have the addresses of all tasks."""
  return ["--%s_hosts=%s" % (job, ",".join(addresses_of(tasks, job))) for job in ("ps", "worker")
          if addresses_of(tasks, job)]


def tf_config_of(tasks: Sequence[Task], task: Task) -> str:
  """Returns the TF_CONFIG of a task, as Kubeflow writes it: an evaluator is not in the cluster."""
  return make_tf_config(
    {job: addresses_of(tasks, job) for job in ("ps", "worker")}, task.job, task.index)


class Job(NamedTuple):
  """A job to start and watch. All limits are seconds."""

  # The tasks, or what the backend starts for them; a `name` begins with the task's job.
  tasks: Sequence[Any]
  prefix: str  # the beginning of the launcher's own lines: "tf1ps-local: "
  grace: float  # from the end of the last worker until the ps must have ended
  end_limit: float  # for workers after SIGTERM, once a task has failed
  signalled_limit: float  # for workers after a signal, once the launcher has got a signal
  others_limit: float  # for the other tasks after SIGTERM
  killed_limit: float  # for tasks after SIGKILL
  output_limit: float  # for the last output of tasks that have ended
  log_dir: Optional[str] = None  # the directory of a log file per task; None: no log files
  keeps_logs: bool = True  # False: the log files are deleted after a good end
  max_restarts: int = 0  # the most restarts of each task
  # Whether the tasks are programs of tf1ps: each ends by itself, its exit code has the meaning of
  # compat/exit_codes.py, and its last line says why it ended.
  is_ours: bool = True
  folds: bool = False  # whether the screen omits noise and holds back tracebacks


class JobOutcome(NamedTuple):
  """How the tasks of a job ended."""

  exit_code: int  # 0 if every task returned 0; 128 + n if signal n ended the launcher; else 1
  text: str  # "ended by SIGINT"; for a failure, the tasks that failed first, and why
  # For a failure, the last lines of the tasks that failed first; else the warnings of tasks.
  report: Sequence[str] = ()
  is_shown: bool = False  # whether the lines of the report are already on the screen
  port_taken: bool = False  # whether the port of a task was taken, so that another try makes sense
  restarts: int = 0  # how many failed tasks were started again


class TaskProcess:
  """A task that was started.

  Attributes:
    name: the task's name.
    pid: the process id, which is also the id of the process group.
    output: the file descriptor of a pipe with its stdout and stderr; the reader closes it.
    exit_code: None while the process runs, then its exit code; -n if signal n ended it.
    ended_at: None while the process runs, then the time of its end, as from `time.time`.
  """

  def __init__(self, name: str, pid: int, output: int):
    self.name, self.pid, self.output, self._where = name, pid, output, ""
    self.exit_code: Optional[int] = None
    self.ended_at: Optional[float] = None

  def __repr__(self):
    return "TaskProcess(%r, pid=%d, exit_code=%r)" % (self.name, self.pid, self.exit_code)

  def note_end(self, exit_code: int) -> None:
    """Notes that the process has ended."""
    self.exit_code, self.ended_at = exit_code, time.time()

  @property
  def place(self) -> str:
    """Where the task was started: "ps 0 (process 17)", "ps 0 on node3"."""
    return "%s (process %d)" % (self.name, self.pid)

  @property
  def end(self) -> str:
    """How the task ended: "worker 1 was killed by SIGKILL"."""
    return "%s%s %s" % (self.name, self._where, self._end())

  @property
  def title(self) -> str:
    """The title of the task's last lines."""
    return "%s, process %d on %s, which %s at %s" % (
      self.name, self.pid, socket.gethostname(), self._end(), self._ended_at())

  @property
  def was_killed(self) -> bool:
    """Whether a signal killed it: among failures seen together, a killed task is the cause."""
    return self.exit_code < 0

  @property
  def was_ended_by_signal(self) -> bool:
    """Whether the task ended by a signal that a user may have sent to the whole job."""
    return self.exit_code in _SIGNALLED

  def _end(self):
    if self.exit_code < 0:
      return "was killed by %s" % signal_name(-self.exit_code)
    if self.exit_code == EXIT_PORT_TAKEN:
      return "found its port taken"
    between = (EXIT_RELEASED, EXIT_REFUSED)  # codes that only the launcher interprets
    return "ended with exit code %d" % (
      EXIT_FAILED if self.exit_code in between else self.exit_code)

  def _ended_at(self):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.ended_at))


class Backend:
  """Starts the tasks of a job and signals them; the interface to their processes.

  Attributes:
    ended: the processes that have ended, in the order of their ends.
  """

  ended: List[TaskProcess]

  def start_task(self, task: Any) -> TaskProcess:
    """Starts a task; returns its process."""
    raise NotImplementedError

  def take(self) -> None:
    """Adds the processes that have ended since the last call to `ended`."""

  def wait(self, interrupts: Any, limit: Optional[float]) -> None:
    """Waits for news of a task or for `interrupts`, at most `limit` seconds if it is given."""

  def signal_task(self, process: TaskProcess, number: int) -> None:
    """Signals a running task and the processes that it has started."""


def count_tasks(tasks: Sequence[Task]) -> str:
  """Returns "2 ps and 1 worker", "1 ps, 2 workers and 1 evaluator"."""
  jobs = [task.job for task in tasks]
  parts = ["%d ps" % jobs.count("ps"), plural(jobs.count("worker"), "worker")]
  return "%s, %s and 1 evaluator" % tuple(parts) if EVALUATOR in jobs else " and ".join(parts)


def plural(number: int, noun: str) -> str:
  """Returns "1 worker", "2 workers"."""
  return "%d %s%s" % (number, noun, "" if number == 1 else "s")
