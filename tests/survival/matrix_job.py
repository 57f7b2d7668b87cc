"""Makes the faults of the failure matrix happen, with real processes, and says what was seen."""
from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import threading
import time
from typing import Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tests import harness
from tests.survival import matrix, matrix_gates, matrix_tasks
from tf1ps import state

PROGRAM = "--program=" + str(pathlib.Path(__file__).parent / "matrix_program.py")
_DISK = "16m"  # of the tmpfs that becomes full
_ORDER = " ".join(matrix.FAULTS)  # of faults that come at once; a fault of worlds is alone


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


def problems(promised: matrix.Promise, seen: Seen) -> List[str]:
  """Returns where a run did not do what it promises, as sentences."""
  found = []
  for name, code in seen.codes.items():
    if code is None:
      found.append("%s has not ended" % name)
    elif promised.goes_on and code:
      found.append("%s ended with %d: %s" % (name, code, seen.last_lines[name]))
  if promised.goes_on:
    if (seen.checkpoint_step or 0) not in promised.steps:
      found.append("the last checkpoint has step %s" % seen.checkpoint_step)
    if seen.run_state != state.RUN_ENDED:
      found.append("the run's file says %s" % seen.run_state)
    if seen.lost_steps > promised.lost_steps:
      found.append("%d steps were lost" % seen.lost_steps)
  for name, words in promised.failing.items():
    if seen.codes[name] not in (1, None):
      found.append("%s ended with %d: %s" % (name, seen.codes[name], seen.last_lines[name]))
    elif words and not any(word in seen.last_lines[name] for word in words):
      found.append("%s does not say why: %s" % (name, seen.last_lines[name]))
  if seen.effect > promised.seconds + 5.0:
    found.append("it took %.1f s, and not %g" % (seen.effect, promised.seconds))
  return found


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
    self._wired = 0

  def wire(self, name, pid, address):
    """Connects a process that is apart; one with an older one's address takes its MAC, too."""
    port = "p%d" % self._wired
    self._wired += 1
    self._ports[name] = port
    mac = "02:00:00:00:00:%02x" % int(address.rpartition(".")[2])
    self._run(self._hub.pid, "ip link add %s type veth peer name eth0 address %s netns %d && "
              "ip link set %s master hub up" % (port, mac, pid, port))
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
  """The job of a cell, or of the stages of its faults."""

  timing: Dict[str, float] = {}  # of the checkpoint directory, where it differs from the tests'

  def __init__(self, stages: Sequence[matrix.Stage], pace, start, folder):
    self._stages, self.pace, self._start = stages, pace, start
    self._cells = [cell for stage in stages for cell in stage.cells]
    self.scheme = self._cells[0].scheme
    self._folder = str(folder)
    self._directory = os.path.join(self._folder, "model")
    os.makedirs(os.path.join(self._directory, "eval"))
    os.mkdir(os.path.join(self._folder, "gates"))
    self._gates = matrix_gates.Gates(os.path.join(self._folder, "gates"))
    roles = {cell.role for cell in self._cells if cell.fault == "full"}
    self._disks: Dict[str, Disk] = {}
    for role in ("ps", "evaluator", "worker"):  # a disk in another one comes later
      if roles & {role, "chief" if role == "ps" else role}:
        self._disks[self._disk_folder(role)] = Disk(self._disk_folder(role))
    is_apart = any(cell.fault == "cut" for cell in self._cells)
    self._network = Network(start, folder) if is_apart else None
    self._servers = matrix.servers(self.scheme)
    if self._network:
      addresses = ["10.213.7.%d:2222" % (number + 1) for number in range(len(self._servers))]
    else:
      addresses = harness.addresses(len(self._servers))
    self._addresses = dict(zip(self._servers, addresses))
    self._tasks: Dict[str, harness.Task] = {}
    self._begun = 0

  def _disk_folder(self, role):
    return {"worker": os.path.join(self._folder, "log"),
            "evaluator": os.path.join(self._directory, "eval")}.get(role, self._directory)

  def close(self):
    if self._disks:
      for task in self._tasks.values():
        task.kill()
    for disk in reversed(list(self._disks.values())):
      disk.close()

  def run(self) -> Seen:
    """Runs the job to its end."""
    began = time.monotonic()
    cell = self._cells[0]
    if cell.phase in ("end", "evaluating") and cell.role != "chief" or cell.phase == "end":
      self._gates.write("finish")
    held = {task for stage in self._stages for task in stage.holds}
    has_evaluator = "evaluator 0" in held.union(each.victim for each in self._cells)
    for name in self._servers + ["evaluator 0"] * has_evaluator:
      self._begin(name)
    at = began
    for number, stage in enumerate(self._stages):
      self._reach(number, stage)
      at = time.monotonic()
      self._hit(number, stage.cells)
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
    """Seconds from the last fault in which a job must have ended, whatever it promises."""
    pace = self.pace
    return pace.start_timeout + 3 * pace.heartbeat_timeout + pace.stop + pace.room + 30.0

  @property
  def _save_steps(self):
    # The last checkpoint is still to come when the disk becomes full.
    is_last = any((cell.phase, cell.fault) == ("end", "full") for cell in self._cells)
    return (matrix.STEPS * 2 // 3) if is_last else matrix.SAVE_STEPS

  def output(self) -> str:
    """What all tasks have printed, for a failure."""
    return "\n".join("--- %s\n%s" % (name, task.output) for name, task in self._tasks.items())

  def _begin(self, name):
    self._begun += 1  # a process that is started again has a network of its own
    apart = "process %d" % self._begun if self._network and name in self._addresses else None
    self._tasks[name] = task = self._run(name, name, self._addresses, apart)
    if apart:
      harness.wait_until(lambda: self._gates.is_there(apart + " is apart"), what=name)
      self._network.wire(name, task.pid, self._addresses[name].partition(":")[0])
      self._gates.write(apart + " is wired")

  def _run(self, name, task, addresses, apart=None):
    """Starts a process under a name as a task of the job with these addresses."""
    job, index = task.split()
    hosts = {each: ",".join(address for task, address in addresses.items()
                            if task.startswith(each)) for each in ("ps", "worker")}
    pace = self.pace
    argv = ["--heartbeat_timeout=%g" % pace.heartbeat_timeout,
            "--start_timeout=%g" % pace.start_timeout]
    if job != "evaluator":
      argv += ["--%s_hosts=%s" % each for each in hosts.items() if each[1]]
      argv += ["--task_index=" + index]
    if job != "ps":
      argv += [PROGRAM, "--batch_size=%d" % matrix.BATCH, "--checkpoint_dir=" + self._directory]
    if job == "worker":
      argv += ["--steps=%d" % matrix.STEPS, "--save_checkpoints=steps:%d" % self._save_steps,
               "--optimizer=sgd", "--learning_rate=0.01", *matrix.SCHEME_FLAGS[self.scheme]]
    settings = {
      "folder": self._gates.path(""), "task": name,
      "holds": [stage.holds.get(name) for stage in self._stages],
      # A second fault, too, must come before the last step.
      "paces": [pace.step, pace.step * (1 if len(self._cells) == 1 else 3)],
      "end_timeout": 2 * pace.heartbeat_timeout,
      "directory": self._directory, "steps": matrix.STEPS, "timing": self.timing}
    log = None
    if name == matrix.VICTIMS["worker"] and self._disk_folder("worker") in self._disks:
      log = os.path.join(self._disk_folder("worker"), "log")
    return self._start(name, matrix_tasks.run, job, argv, apart, log, self._place(name),
                       **{matrix_gates.VARIABLE: json.dumps(settings)})

  def _place(self, name):
    """The place of a task in a world, see worlds_job.py."""

  def _kill(self, task):
    task.kill()

  def _signal(self, task, number):
    task.signal(number)

  def _reach(self, number, stage):
    """Waits until the stage is reached; whoever shows it waits for the faults."""
    first = self._cells[0]
    if number and (first.role, first.fault) == ("ps", "killed"):
      self._tasks[first.victim].wait_for("serving")
    for name, place in stage.holds.items():
      def reached(name=name):
        if self._gates.is_there("reached %d %s" % (number, name)):
          return True
        holder = self._tasks[name]
        assert holder.is_running, "%s ended before its place:\n%s" % (name, self.output())
        return False

      harness.wait_until(reached, 90.0, lambda name=name, place=place: "%s of %s:\n%s" % (
        place, name, self.output()))
    for cell in stage.cells:
      if cell[:2] == ("evaluator", "training"):
        harness.wait_until(lambda: self._events("evaluation"), what="a first evaluation")
      if cell[:2] == ("worker", "evaluating"):
        self._tasks[cell.victim].wait()

  # The faults: each is an iterator, which stops once for the others that come at once.

  def _hit(self, number, cells):
    for cell in cells:
      assert self._tasks[cell.victim].is_running or cell[:2] == ("worker", "evaluating"), (
        "%s ended before its fault:\n%s" % (cell.victim, self.output()))
    hits = [getattr(self, "_" + cell.fault)(cell)
            for cell in sorted(cells, key=lambda cell: _ORDER.find(cell.fault))]
    for hit in hits:
      next(hit)
    self._gates.write("open %d" % number)
    for hit in hits:
      next(hit, None)

  def _killed(self, cell):
    self._kill(self._tasks[cell.victim])
    yield
    self._begin(cell.victim)

  def _stopped(self, cell):
    victim = self._tasks[cell.victim]
    self._signal(victim, signal.SIGSTOP)
    began = time.monotonic()  # two stops that come at once last as long as one
    yield
    # Silences add up: a second stop, or a restart of the same task, shares the time with this one.
    silences = sum(any(each.fault == "stopped" or (each.fault, each.role) == ("killed", cell.role)
                       for each in stage.cells) for stage in self._stages)
    threading.Event().wait(max(0.0, began + self.pace.stop / silences - time.monotonic()))
    self._signal(victim, signal.SIGCONT)

  def _cut(self, cell):
    self._network.cut(cell.victim)
    yield

  def _full(self, cell):
    disk = self._disks[self._disk_folder(cell.role)]
    disk.fill()
    at, before = time.monotonic(), self._highest()
    yield
    victim = self._tasks[cell.victim]

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
    if cell.phase not in ("end", "evaluating"):
      disk.free()

  # What came of it.

  def _await_back(self, at) -> Optional[float]:
    """Waits until the victims work again, or until that cannot be; returns when they did."""
    now = time.monotonic()
    # Of another process than before, the first sign counts.
    found = [self._await_victim(cell, now if cell.fault in ("stopped", "cut") else at,
                                now + 2 * self.pace.heartbeat_timeout + self.pace.room)
             for cell in self._cells]
    return None if None in found else max(found)

  def _await_victim(self, cell, since, until) -> Optional[float]:
    victim = self._tasks[cell.victim]
    event = "evaluation" if cell.role == "evaluator" else "step"
    is_cut = any(each.fault == "cut" for each in self._cells)
    if cell.role == "ps" and cell.fault == "killed" and self._has_said(
        victim, "serving", until - time.monotonic()):
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
      return -1.0 if is_cut else None

    try:
      found = harness.wait_until(back, until - time.monotonic())
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
    lines: List[str] = harness.without_logs(self._tasks[name].lines)
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
