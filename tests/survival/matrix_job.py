"""Makes one cell of the failure matrix happen, with real processes, and says what was seen."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from typing import Dict, List, NamedTuple, Optional

import tensorflow.compat.v1 as tf

from tests import harness
from tests.survival import matrix, matrix_gates, matrix_tasks
from tf1ps import state

PROGRAM = "--program=" + str(pathlib.Path(__file__).parent / "matrix_program.py")
_DISK = "16m"  # of the tmpfs that becomes full


class NotPermitted(Exception):
  """This machine does not let the suite make a network or a disk of its own."""


class Seen(NamedTuple):
  """What was seen in a cell."""
  codes: Dict[str, Optional[int]]  # of each task; of one that was started again: of the second
  last_lines: Dict[str, str]
  back_after: Optional[float]  # seconds from the fault until the job trained on with all tasks
  ended_after: float  # seconds from the fault until the last task had ended
  lost_steps: int  # how far the global step fell
  run_state: Optional[str]  # in the status file
  checkpoint_step: Optional[int]  # of the last checkpoint, which was read whole
  seconds: float  # of the whole cell

  @property
  def effect(self) -> float:
    """Seconds from the fault until the job trained on, or until its end."""
    return self.ended_after if self.back_after is None else self.back_after

  @property
  def outcome(self) -> str:
    """What became of the job."""
    if None in self.codes.values():
      return "hangs"
    return "fails" if any(self.codes.values()) else "goes on"


def problems(cell: matrix.Cell, seen: Seen, pace: matrix.Pace) -> List[str]:
  """Returns where a cell did not do what it promises, as sentences."""
  promised, found = matrix.expectation(cell), []
  limit = matrix.limits(pace)[promised.within]
  for name, code in seen.codes.items():
    if code is None:
      found.append("%s has not ended" % name)
    elif promised.goes_on and code:
      found.append("%s ended with %d: %s" % (name, code, seen.last_lines[name]))
  if promised.goes_on:
    # At the end of synchronous training no worker may be left that makes lost steps again.
    is_short = promised.lost and (cell.phase, cell.scheme) in (("end", "sync"), ("end", "spare"))
    least = matrix.STEPS - (matrix.LOST_STEPS if is_short else 0)
    if not least <= (seen.checkpoint_step or 0) < matrix.STEPS + matrix.WORKERS[cell.scheme]:
      found.append("the last checkpoint has step %s" % seen.checkpoint_step)
    if seen.run_state != state.RUN_ENDED:
      found.append("the run's file says %s" % seen.run_state)
    if seen.lost_steps > (matrix.LOST_STEPS if promised.lost else 0):
      found.append("%d steps were lost" % seen.lost_steps)
  else:
    for name in dict.fromkeys([*promised.failing, *[cell.victim] * promised.victim_fails]):
      if seen.codes[name] not in (1, None):
        found.append("%s ended with %d: %s" % (name, seen.codes[name], seen.last_lines[name]))
      elif not _says(promised.names or name != cell.victim and _full_name(cell.victim),
                     seen.last_lines[name]):
        found.append("%s does not say why: %s" % (name, seen.last_lines[name]))
  if seen.effect > limit + 5.0:
    found.append("it took %.1f s, and not %g" % (seen.effect, limit))
  return found


def _says(words, line):
  return not words or words in line


def _full_name(task):
  return "/job:%s/task:%s" % tuple(task.split())


class Network(object):
  """A network namespace for each task, and one with a bridge that joins them."""

  def __init__(self, start, folder):
    if os.geteuid() or not all(map(shutil.which, ("ip", "nsenter"))):
      raise NotPermitted("network namespaces need root, ip and nsenter")
    ready = os.path.join(str(folder), "hub is apart")
    self._hub = start("hub", matrix_tasks.hold_network, ready)
    harness.wait_until(lambda: os.path.exists(ready) or not self._hub.is_running, what="the hub")
    if not self._hub.is_running:
      raise NotPermitted("network namespaces are not permitted: %s" % self._hub.output)
    self._run(self._hub.pid, "ip link add hub type bridge && ip link set hub up")
    self._ports = {}

  def wire(self, name, pid, address):
    """Connects a process that is apart."""
    port = "p%d" % len(self._ports)
    self._ports[name] = port
    self._run(self._hub.pid, "ip link add %s type veth peer name eth0 netns %d && ip link set %s "
              "master hub up" % (port, pid, port))
    self._run(pid, "ip link set lo up && ip addr add %s/24 dev eth0 && ip link set eth0 up" % (
      address))

  def cut(self, name):
    """Pulls the cable of a task."""
    self._run(self._hub.pid, "ip link set %s down" % self._ports[name])

  def _run(self, pid, command):
    done = subprocess.run(["nsenter", "-t", str(pid), "-n", "sh", "-c", command],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
      raise NotPermitted("%s: %s" % (command, done.stdout.decode().strip()))


class Disk(object):
  """A small disk that the driver fills and frees."""

  def __init__(self, folder):
    self.folder = str(folder)
    os.makedirs(self.folder, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=" + _DISK, "tf1ps", self.folder],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
      raise NotPermitted("a disk of the suite's own: %s" % done.stdout.decode().strip())

  def fill(self):
    with open(os.path.join(self.folder, "filler"), "wb", buffering=0) as file:
      for size in (1 << 16, 1 << 12, 1):
        try:
          while True:
            file.write(b"\0" * size)
        except OSError:
          pass

  def free(self):
    os.remove(os.path.join(self.folder, "filler"))

  def close(self):
    subprocess.run(["umount", "-l", self.folder], check=True)


class Job(object):
  """The job of a cell."""

  def __init__(self, cell, pace, start, folder):
    self.cell, self.pace, self._start = cell, pace, start
    self._folder = str(folder)
    self._directory = os.path.join(self._folder, "model")
    os.makedirs(os.path.join(self._directory, "eval"))
    os.mkdir(os.path.join(self._folder, "gates"))
    self._gates = matrix_gates.Gates(os.path.join(self._folder, "gates"))
    self._network = Network(start, folder) if cell.fault == "cut" else None
    self._disk = None
    if cell.fault == "full":
      self._disk = Disk({"worker": os.path.join(self._folder, "log"),
                         "evaluator": os.path.join(self._directory, "eval")}.get(
                           cell.role, self._directory))
    servers = [name for name in cell.tasks if not name.startswith("evaluator")]
    if self._network:
      addresses = ["10.213.7.%d:2222" % (number + 1) for number in range(len(servers))]
    else:
      addresses = harness.addresses(len(servers))
    self._addresses = dict(zip(servers, addresses))
    self._tasks: Dict[str, harness.Task] = {}

  def close(self):
    if self._disk is not None:
      for task in self._tasks.values():
        task.kill()
      self._disk.close()

  def run(self) -> Seen:
    """Runs the cell to its end."""
    began = time.monotonic()
    cell = self.cell
    if cell.phase in ("end", "evaluating") and cell.role != "chief" or cell.phase == "end":
      self._gates.write("finish")
    for name in cell.tasks:
      self._begin(name)
    self._reach()
    at = time.monotonic()
    getattr(self, "_" + cell.fault)()
    back_at = self._await_back(at)
    self._gates.write("finish")
    until = at + self.end_limit
    codes: Dict[str, Optional[int]] = {}
    for name, task in self._tasks.items():
      try:
        codes[name] = task.wait(max(0.1, until - time.monotonic()))
      except AssertionError:
        codes[name] = None  # it hangs
    ended = time.monotonic()
    found, saved = state.RunFile(self._directory).read(), self._checkpoint_step()
    lost = max(self._rolled_back(), self._highest() - (saved or 0))
    return Seen(
      codes, {name: self._last_line(name) for name in self._tasks},
      None if back_at is None else back_at - at, ended - at, lost, found and found.state, saved,
      ended - began)

  @property
  def end_limit(self):
    """Seconds from the fault in which a job must have ended, whatever it promises."""
    pace = self.pace
    return pace.start_timeout + 3 * pace.heartbeat_timeout + pace.stop + pace.room + 30.0

  @property
  def _save_steps(self):
    # The last checkpoint is still to come when the disk becomes full.
    is_last = (self.cell.phase, self.cell.fault) == ("end", "full")
    return (matrix.STEPS * 2 // 3) if is_last else matrix.SAVE_STEPS

  def output(self) -> str:
    """What all tasks have printed, for a failure."""
    return "\n".join("--- %s\n%s" % (name, task.output) for name, task in self._tasks.items())

  def _begin(self, name):
    job, index = name.split()
    hosts = {each: ",".join(address for task, address in self._addresses.items()
                            if task.startswith(each)) for each in ("ps", "worker")}
    pace, cell = self.pace, self.cell
    argv = ["--heartbeat_timeout=%g" % pace.heartbeat_timeout,
            "--start_timeout=%g" % pace.start_timeout]
    if job != "evaluator":
      argv += ["--%s_hosts=%s" % each for each in hosts.items() if each[1]]
      argv += ["--task_index=" + index]
    if job != "ps":
      argv += [PROGRAM, "--batch_size=%d" % matrix.BATCH, "--checkpoint_dir=" + self._directory]
    if job == "worker":
      argv += ["--steps=%d" % matrix.STEPS, "--save_checkpoints_steps=%d" % self._save_steps,
               "--end_timeout=%g" % (2 * pace.heartbeat_timeout), "--optimizer=sgd",
               "--learning_rate=0.01", *matrix.SCHEME_FLAGS[cell.scheme]]
    settings = {
      "folder": self._gates.path(""), "task": name, "holder": cell.holder, "phase": cell.phase,
      "pace": pace.step, "directory": self._directory, "steps": matrix.STEPS}
    apart = name.replace(" ", "-") if self._network and job != "evaluator" else None
    log = None
    if cell.fault == "full" and name == cell.victim and cell.role == "worker":
      log = os.path.join(self._disk.folder, "log")
    self._tasks[name] = self._start(
      name, matrix_tasks.run, job, argv, apart, log,
      **{matrix_gates.VARIABLE: json.dumps(settings)})
    if apart:
      task = self._tasks[name]
      harness.wait_until(lambda: self._gates.is_there(apart + " is apart"), what=name)
      self._network.wire(name, task.pid, self._addresses[name].partition(":")[0])
      self._gates.write(apart + " is wired")

  def _reach(self):
    """Waits until the phase is reached; whoever shows it waits for the fault."""
    def reached():
      if self._gates.is_there("reached"):
        return True
      holder = self._tasks[self.cell.holder]
      assert holder.is_running, "%s ended before the phase:\n%s" % (holder.name, self.output())
      return False

    harness.wait_until(reached, 90.0, lambda: "%s of %s:\n%s" % (
      self.cell.phase, self.cell.holder, self.output()))
    if self.cell[:2] == ("evaluator", "training"):
      harness.wait_until(lambda: self._events("evaluation"), what="a first evaluation")
    if self.cell[:2] == ("worker", "evaluating"):
      self._tasks[self.cell.victim].wait()
    if self.cell[:3] == ("chief", "end", "all_reduce"):  # its last hook runs when all have reported
      self._tasks["worker 1"].wait()

  # The faults.

  def _killed(self):
    self._tasks[self.cell.victim].kill()
    self._gates.write("open")
    self._begin(self.cell.victim)

  def _stopped(self):
    victim = self._tasks[self.cell.victim]
    victim.signal(signal.SIGSTOP)
    self._gates.write("open")
    threading.Event().wait(self.pace.stop)
    victim.signal(signal.SIGCONT)

  def _cut(self):
    self._network.cut(self.cell.victim)
    self._gates.write("open")

  def _full(self):
    self._disk.fill()
    self._gates.write("open")
    at, before = time.monotonic(), self._highest()
    cell, victim = self.cell, self._tasks[self.cell.victim]

    def is_felt():
      if cell.role in ("ps", "chief"):
        return (not self._tasks[matrix.CHIEF].is_running
                or self._highest() >= before + 2 * matrix.SAVE_STEPS)
      signs = [when for when, _, pid, event, _ in self._gates.history()
               if pid == victim.pid and when > at and event != "save"]
      return not victim.is_running or len(signs) >= 2

    try:
      harness.wait_until(is_felt, self.pace.heartbeat_timeout)
    except AssertionError:
      pass  # whoever waits for others writes nothing
    if self.cell.phase not in ("end", "evaluating"):
      self._disk.free()

  # What came of it.

  def _await_back(self, at) -> Optional[float]:
    """Waits until the victim works again, or until that cannot be; returns when it did."""
    cell, victim = self.cell, self._tasks[self.cell.victim]
    event = "evaluation" if cell.role == "evaluator" else "step"
    limit = 2 * self.pace.heartbeat_timeout + self.pace.room
    # Of another process than before, the first sign counts.
    since = at if cell.fault in ("killed", "full") else time.monotonic()
    if cell.role == "ps" and cell.fault == "killed" and self._has_said(victim, "serving", limit):
      since = time.monotonic()

    def signs():
      """The first sign of each process that goes on, after the fault."""
      return {pid: when for when, task, pid, what, _ in reversed(self._gates.history())
              if what == event and when > since
              and (cell.role == "ps" or (task, pid) == (cell.victim, victim.pid))}

    def back():
      found = signs()
      awaited = [victim] if cell.role != "ps" else [
        task for name, task in self._tasks.items() if name.startswith("worker")]
      awaited = [task for task in awaited if task.pid not in found]
      if not any(task.is_running for task in awaited):
        return max(found.values()) if found else -1.0
      return -1.0 if cell.fault == "cut" else None

    try:
      found = harness.wait_until(back, limit)
    except AssertionError:
      return None
    return found if found > 0 else None

  @staticmethod
  def _has_said(task, text, limit):
    try:
      return task.wait_for(text, limit)
    except AssertionError:
      return None  # the cell's end says so

  def _events(self, kind):
    return [each for each in self._gates.history() if each[3] == kind]

  def _highest(self):
    return max([each[4] for each in self._events("step")] or [0])

  def _rolled_back(self):
    """How far the global step fell: a process that goes on sees a lower one than before."""
    lost, highest, of_process = 0, 0, {}
    for _, _, pid, _, number in self._events("step"):
      if number < of_process.get(pid, 0):
        lost = max(lost, highest - number)
        highest, of_process = number, {}
      of_process[pid], highest = number, max(highest, number)
    return lost

  def _last_line(self, name):
    lines: List[str] = self._tasks[name].lines
    return lines[-1] if lines else ""

  def _checkpoint_step(self) -> Optional[int]:
    """The global step of the last checkpoint, after a look at every value in it."""
    latest = tf.train.latest_checkpoint(self._directory)
    if latest is None:
      return None
    reader = tf.train.NewCheckpointReader(latest)
    for key in reader.get_variable_to_shape_map():
      reader.get_tensor(key)
    return int(reader.get_tensor("global_step"))
