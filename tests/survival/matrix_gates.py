"""How a task of the failure matrix shows its phase and waits there, and the history of its steps.

All of it is files in one folder, because a cut network and a stopped ps leave files as they are.
A phase is reached when its holders have written `reached N TASK`, for stage N of the faults; they
go on when `open N` is there.
"""
from __future__ import annotations

import json
import os
import threading
import time

from tools.chaos import worlds

VARIABLE = "TF1PS_MATRIX"  # a JSON object: folder, task, holds, paces
_LIMIT = 600.0  # seconds that a holder waits; the driver kills it long before


class Gates(object):
  """The driver's and the tasks' view of one folder."""

  def __init__(self, folder):
    self._folder = str(folder)

  def path(self, name):
    return os.path.join(self._folder, name)

  def is_there(self, name):
    return os.path.exists(self.path(name))

  def write(self, name, text=""):
    temporary = self.path("%s.%d.tmp" % (name, worlds.process_id()))
    with open(temporary, "w") as file:
      file.write(text)
    os.rename(temporary, self.path(name))

  def wait(self, name):
    """Waits in a task until a file is there."""
    until = time.monotonic() + _LIMIT
    pause = threading.Event()
    while not self.is_there(name) and time.monotonic() < until:
      pause.wait(0.01)

  def history(self):
    """Returns (time, task, process id, event, number) of all tasks, in the order of time."""
    found = []
    for name in os.listdir(self._folder):
      if name.startswith("history-"):
        _, task, pid = name.split("-")
        with open(self.path(name)) as file:
          for line in file.read().split("\n")[:-1]:  # the last one may be half written
            when, event, number = line.split()
            found.append((float(when), task.replace("_", " "), int(pid), event, int(number)))
    return sorted(found)


def of_process():
  """Returns this process's settings, or None outside of the matrix."""
  text = os.environ.get(VARIABLE)
  return json.loads(text) if text else None


def reach(place):
  """Shows that this task is in a phase, and waits there, if a stage of the faults asks for that."""
  mine = of_process()
  for stage, held in enumerate(mine["holds"] if mine else []):
    gates = Gates(mine["folder"])
    if held == place and not gates.is_there("open %d" % stage):
      gates.write("reached %d %s" % (stage, mine["task"]), str(os.getpid()))
      gates.wait("open %d" % stage)


def recover(place):
  """The same, but only during the recovery from the first fault."""
  mine = of_process()
  if mine is not None and Gates(mine["folder"]).is_there("open 0"):
    reach(place)


def note(event, number):
  """Writes an event of this task into the history."""
  mine = of_process()
  if mine is not None:
    path = Gates(mine["folder"]).path(
      "history-%s-%d" % (mine["task"].replace(" ", "_"), worlds.process_id()))
    with open(path, "a") as file:
      file.write("%.4f %s %d\n" % (time.monotonic(), event, number))


def pace_step():
  """Makes a step last as long as the cell wants, until the driver writes `finish`."""
  mine = of_process()
  if mine is not None and not Gates(mine["folder"]).is_there("finish"):
    threading.Event().wait(mine["paces"][Gates(mine["folder"]).is_there("open 0")])
