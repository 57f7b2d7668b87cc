"""Makes a cell of a world happen: the job of a cell of the matrix, in that world."""
from __future__ import annotations

import os
import signal
from typing import List

from tests import harness
from tests.survival import matrix, matrix_job
from tf1ps import state
from tools.chaos import filesystem, worlds

_GUESTS = ("ps 0", "worker 0")  # of the job that comes with the directory of another


class Job(matrix_job.Job):
  """The job of a cell in a world.

  Attributes:
    found: what the fault itself has shown to be wrong, as sentences.
  """

  def __init__(self, cell, pace, start, folder):
    self.found: List[str] = []
    self._chiefs_disk = ""  # for the chief's next start, if that is another one
    tasks = matrix.servers(cell.cell.scheme) + ["evaluator 0"] * (
      "evaluator 0" in (cell.cell.victim, cell.cell.holder)) + ["guest " + name for name in _GUESTS]
    try:
      self._made = worlds.Made(cell.world, os.path.join(str(folder), "model"), str(folder), tasks)
    except worlds.WorldError as error:
      raise matrix_job.NotPermitted(str(error)) from error
    super().__init__(matrix.stages(cell.cell), pace, start, folder)
    if cell.cell.fault == "second":
      # The living chief writes once per second, so the watch has time for a busy machine. In other
      # cells a long watch would keep the evaluator waiting for a chief that is back.
      self.timing = {"status_interval": 3.0}
    served = self._made.served()
    if served is not None:
      server = start("the file system", filesystem.serve, *served)
      harness.wait_until(lambda: self._made.is_ready or not server.is_running, what="its mounts")
      if not self._made.is_ready:
        raise matrix_job.NotPermitted("a file system by FUSE: %s" % server.last_line)

  def close(self):
    for task in self._tasks.values():
      task.kill()
    super().close()
    self._made.close()

  def _place(self, name):
    is_chief = name == matrix.CHIEF
    return self._made.place(name, is_chief or name.startswith("evaluator"),
                            self._chiefs_disk if is_chief else "")

  def _kill(self, task):
    if task.is_running:
      self._signal(task, signal.SIGKILL)
    task.wait()

  def _signal(self, task, number):
    try:
      harness.signal_process(self._made.process(task.pid), number)
    except ProcessLookupError:
      pass  # it has ended meanwhile

  # The faults of worlds alone. The chief waits at its gate while another one comes.

  def _second(self, unused_cell):
    run = state.RunFile(self._directory).read().run
    addresses = dict(zip(_GUESTS, harness.addresses(len(_GUESTS))))
    ps, chief = (self._run("guest " + name, name, addresses) for name in _GUESTS)
    self._await_refusal(chief, "another job saves into")
    self._kill(chief)
    self._kill(ps)
    there = state.RunFile(self._directory).read()
    if there is None or there.run != run:
      self.found.append("the directory is of %s, and not of run %s" % (there, run))
    yield

  def _again(self, unused_cell):
    for task in self._tasks.values():
      self._kill(task)
    yield
    for name in list(self._tasks):
      self._begin(name)

  def _moved(self, unused_cell):
    self._kill(self._tasks[matrix.CHIEF])
    yield
    self._chiefs_disk = self._new_disk()
    self._begin(matrix.CHIEF)
    self._directory = self._chiefs_disk

  def _misled(self, unused_cell):
    self._kill(self._tasks[matrix.CHIEF])
    yield
    self._chiefs_disk = self._new_disk()
    state.RunFile(self._chiefs_disk).write("another", state.RUN_ENDED, 7)
    self._begin(matrix.CHIEF)
    self._await_refusal(self._tasks[matrix.CHIEF], "its directory has run another")
    self._kill(self._tasks[matrix.CHIEF])
    self._chiefs_disk = ""
    self._begin(matrix.CHIEF)

  def _new_disk(self):
    path = os.path.join(self._folder, "new disk")
    os.makedirs(os.path.join(path, "eval"))
    return path

  def _await_refusal(self, task, text):
    """Waits for the end of a chief that has no right to train."""
    try:
      code = task.wait(self.pace.start_timeout + self.pace.room)
    except AssertionError:
      code = None
    line = (harness.without_logs(task.lines) or [""])[-1]
    if code != 1 or text not in line:
      self.found.append("the chief that came ended with %s, and not with 1 and %r: %s" % (
        code, text, line))
