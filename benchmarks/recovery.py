"""Measures the recovery of an asynchronous job after SIGKILL of a worker, and of a ps.

The job has 2 ps and 3 workers. A killed process is started again immediately: by tf1ps-local, which
has imported TensorFlow before, or, in a second job, as a separate program, as a scheduler would
start it. The start of Python and the import of TensorFlow take processor time from the other tasks
for a few seconds. The workers note when they make each step (recovery_program.py); a step lasts a
hundredth of a second.
"""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from typing import Dict, List

from benchmarks import recovery_program, rows, systems
from tf1ps.launch import find_free_addresses

_LIMIT = 120.0  # seconds
_AFTER = 50  # the steps of each worker that end the wait for a recovery
_NUM_PS, _NUM_WORKERS = 2, 3
GAP = "a worker is killed: longest pause of the others"
WORKER = "a worker is killed: from its server to its first step"
OTHERS = "a ps is killed: from the restored state to the steps of all"
PS = "a ps is killed: from the kill to the steps of all"
NEW = "the same, and the ps is started as a program of its own"


def run(args) -> List[dict]:
  """Measures; the rows also have the key "seconds"."""
  found: Dict[str, List[float]] = {GAP: [], WORKER: [], OTHERS: [], PS: [], NEW: []}
  for is_launched in (True, False):
    with tempfile.TemporaryDirectory(prefix="tf1ps-recovery-") as folder:
      job = _Job(folder, is_launched)
      try:
        job.wait_for_steps(0.0)
        for _ in range(args.rounds):
          if not is_launched:
            found[NEW].append(job.lose_ps()[1])
            continue
          for names, seconds in (((GAP, WORKER), job.lose_worker()), ((OTHERS, PS), job.lose_ps())):
            for name, each in zip(names, seconds):
              found[name].append(each)
      finally:
        job.end()
  return [dict(rows.row("recovery", "loopback", name, "", []), seconds=rows.summary(seconds),
               seconds_to_classic=None) for name, seconds in found.items()]


class _Job:
  """The processes, and the notes of the workers."""

  def __init__(self, folder, is_launched):
    self._folder, self._is_launched = folder, is_launched
    addresses = find_free_addresses(_NUM_PS + _NUM_WORKERS)
    self._hosts = {"ps": addresses[:_NUM_PS], "worker": addresses[_NUM_PS:]}
    self._processes = {}
    for job, hosts in {"local": [""]}.items() if is_launched else self._hosts.items():
      for index in range(len(hosts)):
        self._start(job, index)

  def _start(self, job, index):
    command = [sys.executable, os.path.join("bin", "tf1ps_%s.py" % job)]
    if job == "local":
      command += ["--num_ps=%d" % _NUM_PS, "--num_workers=%d" % _NUM_WORKERS,
                  "--restart=on_failure:1000", "--log_dir=" + self._folder]
    else:
      command.append("--task_index=%d" % index)
      command += ["--%s_hosts=%s" % (name, ",".join(there)) for name, there in self._hosts.items()]
    if job != "ps":
      command += [
        "--program=" + os.path.join("benchmarks", "recovery_program.py"), "--steps=100000000",
        "--notes=" + self._folder, "--checkpoint_dir=" + os.path.join(self._folder, "model"),
        "--save_checkpoints=secs:2", "--optimizer=sgd", "--learning_rate=0.001", "--batch_size=10"]
    # With this setting, each restart counts as the first restart of a task that has lived long.
    environment = dict(systems.environment(), TF1PS_TIMING='{"restart_reset": 0}')
    path = os.path.join(self._folder, "%s%d.log" % (job, index))
    with open(path, "a") as log:
      self._processes[job, index] = subprocess.Popen(
        command, cwd=systems.ROOT, env=environment, stdin=subprocess.DEVNULL,
        stdout=log, stderr=subprocess.STDOUT)

  def end(self):
    for process in self._processes.values():
      process.send_signal(signal.SIGTERM if self._is_launched else signal.SIGKILL)
    for process in self._processes.values():
      process.wait()

  def lose_worker(self):
    """Returns the longest pause of the others, and the seconds from its server to a step."""
    victim = _NUM_WORKERS - 1
    killed = self._kill("worker", victim)
    self.wait_for_steps(killed)
    up = self._times(victim, recovery_program.UP, killed)[0]
    first = self._times(victim, recovery_program.STEP, up)[0]
    gaps = []
    for index in range(victim):
      times = self._times(index, recovery_program.STEP, killed - 1.0)
      gaps += [later - one for one, later in zip(times, times[1:]) if later > killed]
    return max(gaps), first - up

  def lose_ps(self):
    """Returns the seconds from the restored state, and from the kill, to a step of each worker."""
    killed = self._kill("ps", _NUM_PS - 1)
    self._wait(lambda: self._times(0, recovery_program.RESTORED, killed), "the restored state")
    restored = self._times(0, recovery_program.RESTORED, killed)[0]
    self.wait_for_steps(restored)
    last = max(self._times(index, recovery_program.STEP, restored)[0]
               for index in range(_NUM_WORKERS))
    return last - restored, last - killed

  def _kill(self, job, index):
    if self._is_launched:
      with open(os.path.join(self._folder, "%s-%d.log" % (job, index))) as log:
        os.kill(int(re.findall(r"process (\d+), started", log.read())[-1]), signal.SIGKILL)
      return time.monotonic()
    process = self._processes[job, index]
    process.kill()
    killed = time.monotonic()
    process.wait()
    self._start(job, index)
    return killed

  def wait_for_steps(self, since):
    """Waits until each worker has made some steps."""
    self._wait(lambda: all(
      len(self._times(index, recovery_program.STEP, since)) >= _AFTER
      for index in range(_NUM_WORKERS)), "steps of all workers")

  def _times(self, index, kind, since):
    try:
      with open(os.path.join(self._folder, "%d" % index), "rb") as file:
        content = file.read()
    except FileNotFoundError:
      return []
    size = recovery_program.NOTE.size
    return [at for found, at in recovery_program.NOTE.iter_unpack(
      content[:len(content) // size * size]) if found == kind and at > since]

  def _wait(self, condition, what):
    until = time.monotonic() + _LIMIT
    while not condition():
      for (job, index), process in self._processes.items():
        if process.poll() is not None:
          raise RuntimeError("%s %d ended with %d: %s" % (
            job, index, process.returncode, self._last_line(job, index)))
      if time.monotonic() > until:
        raise RuntimeError("%s did not come within %g s" % (what, _LIMIT))
      time.sleep(0.05)

  def _last_line(self, job, index):
    with open(os.path.join(self._folder, "%s%d.log" % (job, index))) as log:
      return (log.read().splitlines() or [""])[-1]
