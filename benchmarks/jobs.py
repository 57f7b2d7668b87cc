"""A running system, which is started, stopped, continued, measured and ended from outside.

All processes of a system are stopped by SIGSTOP while another system has its turn, so that rounds
can be interleaved without a restart. In a window these values are read: the system's steps (from
the files that scripts count in, or from the global step on a ps), the processor time of each
process from /proc, and the bytes of the network device between the processes.
"""
from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from benchmarks import counters, global_steps, links, systems

START_LIMIT = 300.0  # seconds until a system makes its first steps
_LONGEST_LINE = 300  # the characters of a process's output line that an error has
_TICKS = os.sysconf("SC_CLK_TCK")
_LOSS = re.compile(r"^loss (\S+)$|test micro_loss ([\w.+-]+)", re.MULTILINE)
# The messages of a program of tf1ps about a flag, or a flag's value, that it does not know.
_UNKNOWN = re.compile(
  r"cannot import name '\w+' from 'tf1ps[^\n]*|there is no flag --\w+|--\w+ is not a flag|"
  r"flag --\w+=\S+: value should be one of [^\n]*")
# No program sends SIGKILL here; the system does.
_KILLED = ", killed: most likely by the system, as its memory was used up (dmesg tells)"


class JobError(RuntimeError):
  """A system did not run; the message has the end of the system's output."""


class NotThereYet(JobError):
  """This checkout does not know the options of a line."""


class Sample(NamedTuple):
  """The values that were read of a running system at one moment."""

  steps: int
  at: float  # the time of the last step, in seconds
  cpu: Dict[str, float]  # the processor seconds of each job's processes
  bytes: int
  now: float  # seconds


class Window(NamedTuple):
  """The rates between two samples."""

  steps_per_second: float
  cpu_ms_per_step: Dict[str, float]  # by job, "worker" and "ps"
  bytes_per_step: float


class Job:
  """One system that runs."""

  def __init__(self, system: systems.System, run: systems.Run,
               reader: Optional[global_steps.Reader] = None):
    """Starts the processes.

    Args:
      system: the system.
      run: what the system must do; the run's folder gets a subfolder for this job.
      reader: the process that reads global steps, for a system of tf1ps.
    """
    self.system = system
    self._run = run._replace(folder=tempfile.mkdtemp(dir=run.folder))
    self._reader, self._own_reader = reader, None
    if systems.has_links(system):
      systems.make_certificate(self._run)
      self._reader = self._own_reader = global_steps.Reader(
        run.link.prefixes["worker"], systems.environment(), systems.tls_folder(self._run))
    self.tasks, self.addresses = systems.tasks_of(system, self._run)
    self._processes: List[Tuple[systems.Task, subprocess.Popen, str]] = []
    self._stopped_at: Optional[float] = None
    try:
      for task in self.tasks:
        path = os.path.join(self._run.folder, "%s%d.log" % (task.job, task.index))
        with open(path, "w") as log:
          process = subprocess.Popen(
            task.command, cwd=systems.ROOT, env=systems.environment(system.python),
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True)
        self._processes.append((task, process, path))
    except BaseException:
      self.end()
      raise

  def signal(self, number: int) -> None:
    """Sends a signal to all processes."""
    for _, process, _ in self._processes:
      try:
        os.killpg(process.pid, number)
      except ProcessLookupError:
        pass  # the process has ended

  def stop(self) -> None:
    """Stops the processes until `go_on`."""
    self._stopped_at = time.monotonic()
    self.signal(signal.SIGSTOP)

  def go_on(self) -> None:
    """Continues the processes."""
    self._stopped_at = None
    self.signal(signal.SIGCONT)

  @property
  def stood(self) -> float:
    """The seconds since it was stopped; 0 if it is not stopped."""
    return 0.0 if self._stopped_at is None else time.monotonic() - self._stopped_at

  def steps(self) -> Tuple[int, float]:
    """Returns the number of global steps, and when the last step was made."""
    files = [task.counter for task in self.tasks if task.counter]
    if files:
      found = [counters.read(path) for path in files]
      steps = sum(count for count, _ in found)
      if self.system.peer == "classic" and self.system.minibatches_per_step > 1:
        steps //= self.system.minibatches_per_step
      return steps, max(at for _, at in found)
    return self._reader.read(
      self.addresses["ps"][0], systems.CONTAINER, self.system.variables)

  def sample(self) -> Sample:
    """Reads the values at a window's beginning or end; raises JobError if a process has ended."""
    self.check()
    steps, at = self.steps()
    cpu: Dict[str, float] = {"worker": 0.0, "ps": 0.0}
    for task, process, _ in self._processes:
      for pid in [process.pid, *_children(process.pid)]:
        with open("/proc/%d/stat" % pid) as text:
          fields = text.read().rpartition(")")[2].split()
        cpu["ps" if task.job == "ps" else "worker"] += (int(fields[11]) + int(fields[12])) / _TICKS
    last = self._processes[-1][1].pid
    return Sample(steps, at, cpu, links.bytes_of(last, self._run.link.device), time.monotonic())

  def peak_mb(self, kinds=("ps", "worker", "chief")) -> float:
    """Returns the sum of the processes' peak memory, in millions of bytes.

    Args:
      kinds: the jobs whose processes count.

    Raises:
      JobError: a process has ended.
    """
    self.check()
    total = 0.0
    for task, process, _ in self._processes:
      if task.job not in kinds:
        continue
      with open("/proc/%d/status" % process.pid) as text:
        total += int(re.search(r"VmHWM:\s+(\d+) kB", text.read()).group(1)) * 1.024e-3
    return total

  def wait_for_steps(self, steps: int, limit: float = START_LIMIT, every: float = 0.1,
                     meanwhile: Callable[[], None] = lambda: None) -> None:
    """Waits until the system has made so many steps.

    Args:
      steps: the number of steps.
      limit: seconds until a JobError is raised; a JobError is also raised when a process ends.
      every: seconds between two looks.
      meanwhile: called after each look.
    """
    until = time.monotonic() + limit
    while self.steps()[0] < steps:
      self.check()
      if time.monotonic() > until:
        raise JobError("%s made fewer than %d steps in %.0f s\n%s" % (
          self.system.name, steps, limit, self.said()))
      meanwhile()
      time.sleep(every)

  def check(self) -> None:
    """Raises JobError if a process has ended; the error's first line has its last output line."""
    for task, process, path in self._processes:
      if process.poll() is not None:
        killed = process.returncode == -signal.SIGKILL
        with open(path, errors="replace") as log:
          said = log.read().strip().splitlines()[-1:]
        raise self._error("%s: %s %d ended with %d%s" % (
          self.system.name, task.job, task.index, process.returncode,
          _KILLED if killed else "".join(": " + line[:_LONGEST_LINE].strip() for line in said)))

  def loss(self, limit: float) -> float:
    """Waits for the loss that worker 0 or the coordinator prints at its end."""
    teller = next(item for item in reversed(self._processes)
                  if item[0].job == "chief" or item[0].index == 0)
    until = time.monotonic() + limit
    while True:
      ended = teller[1].poll() is not None
      with open(teller[2]) as log:
        found = _LOSS.search(log.read())
      if found:
        return float(found.group(1)) if found.group(1) else float(found.group(2)) / 1e6
      if ended or time.monotonic() > until:
        raise self._error("%s told no loss" % self.system.name)
      time.sleep(0.1)

  def said(self) -> str:
    """Returns the end of each process's output."""
    parts = []
    for task, _, path in self._processes:
      with open(path, errors="replace") as log:
        parts.append("--- %s %d: %s" % (task.job, task.index, log.read()[-1500:].strip()))
    return "\n".join(parts)

  def _error(self, text):
    said = self.said()
    unknown = _UNKNOWN.search(said)
    if unknown and self.system.peer == "tf1ps":
      return NotThereYet("%s: %s" % (self.system.name, unknown.group(0)))
    return JobError("%s\n%s" % (text, said))

  def end(self) -> None:
    """Ends all processes."""
    if self._own_reader is not None:
      self._own_reader.close()
    self.signal(signal.SIGKILL)
    for _, process, _ in self._processes:
      process.wait()


def _children(pid: int) -> List[int]:
  """Returns the processes that a process has started, such as the sidecar of its links."""
  with open("/proc/%d/task/%d/children" % (pid, pid)) as text:
    return [int(child) for child in text.read().split()]


def between(first: Sample, last: Sample) -> Window:
  """Returns the rates between two samples; raises JobError if no step was made."""
  steps = last.steps - first.steps
  seconds = last.at - first.at
  if steps <= 0 or seconds <= 0:
    raise JobError("no step in %.1f s" % (last.now - first.now))
  rate = steps / seconds
  each = rate * (last.now - first.now)  # the steps in the time between the other readings
  return Window(rate, {job: 1000 * (last.cpu[job] - first.cpu[job]) / each for job in last.cpu},
                (last.bytes - first.bytes) / each)
