"""The worlds of the failure matrix as data: the cells that each has, and what they promise.

A world is what the tasks of a job share (tools/chaos/worlds.py). A cell of a world is a cell of the
matrix in it, or a fault that only worlds have: worlds_job.py makes them happen. The promise of a
cell is that of the matrix, except where PROMISES says otherwise.
"""
from __future__ import annotations

from typing import List, NamedTuple, Optional, Tuple

from tests.survival import matrix
from tools.chaos.worlds import WORLDS

# The faults of worlds alone, all of the chief.
FAULTS = {
  "second": "the chief of another job comes with this directory, and is refused",
  "again": "all tasks are killed and started again",
  "moved": "the chief is killed, and comes back with an empty disk",
  "misled": "it is killed, is refused with the disk of another run, and comes back with its own"}


class Cell(NamedTuple):
  """A cell of a world."""
  world: str
  cell: matrix.Cell

  @property
  def name(self) -> str:
    return "%s-%s" % (self.world, self.cell.name)


_DIRECTORY = ("chief-training-async-second", "chief-training-async-again")
_RESTARTS = (
  "chief-initialising-async-killed", "chief-training-async-killed", "chief-training-sync-killed",
  "chief-training-async-stopped", "chief-saving-async-killed", "chief-end-async-killed",
  "chief-evaluating-async-killed",
  "worker-training-sync-killed", "worker-end-async-killed", "worker-evaluating-async-killed",
  "ps-training-async-killed", "ps-end-async-killed", "evaluator-training-async-killed")
_CHOSEN = {
  "one": _DIRECTORY,
  "pids": _DIRECTORY + _RESTARTS + ("chief-training-async-cut", "chief-training-async-full"),
  "hosts": _DIRECTORY + (
    "chief-training-async-killed", "chief-training-sync-killed", "chief-training-async-stopped",
    "chief-end-async-killed", "worker-end-async-killed", "worker-evaluating-async-killed",
    "ps-training-async-killed", "evaluator-training-async-killed"),
  "disks": (
    "chief-start-async-killed", "chief-training-async-killed", "chief-training-async-again",
    "chief-training-async-moved", "chief-training-async-misled", "chief-training-sync-moved",
    "chief-saving-async-killed", "chief-end-async-killed", "worker-training-sync-killed",
    "worker-end-async-killed", "ps-training-async-killed", "evaluator-training-async-killed"),
  "late": _DIRECTORY + _RESTARTS,
  "no_rename": ("chief-start-async-killed",)}
CELLS = [Cell(world, matrix.Cell(*name.split("-"))) for world in WORLDS for name in _CHOSEN[world]]
# What CI runs on each TensorFlow; `make matrix` runs all.
SAMPLE = ("pids-chief-training-async-second", "hosts-chief-training-async-again",
          "disks-chief-training-async-misled", "late-chief-training-async-killed",
          "no_rename-chief-start-async-killed")


def meaningless(cell: Cell, tensorflow: str) -> Optional[str]:
  """Says why a cell means nothing on a TensorFlow; None if it has a meaning."""
  if cell.world == "disks" and tensorflow.startswith("1.") and cell.cell.phase != "start":
    return "on TensorFlow 1.15 no job starts there, see the first save"
  return None


_GOES_ON, _FAILS = matrix.GOES_ON, matrix.FAILS
# The first that fits a world, the first part of a version, and a cell counts.
PROMISES: List[Tuple[str, str, matrix.Expectation]] = [
  # ps 0 writes the checkpoints, onto a disk that the chief does not see.
  ("disks", "1", matrix.Expectation("*", "*", "*", "*", _FAILS, "start",
                                    names="writes its part of a checkpoint on its own disk")),
  # TensorFlow's saver renames, too: no job can save there.
  ("no_rename", "*", matrix.Expectation("*", "*", "*", "*", _FAILS, "start",
                                        names="Function not implemented")),
  # The living job never notices the other one. Its chief waits at its gate for that one's end.
  ("*", "*", matrix.Expectation("chief", "*", "*", "second", _GOES_ON, "start")),
  # All that came after the last checkpoint was on the ps.
  ("*", "*", matrix.Expectation("chief", "*", "*", "again", _GOES_ON, "start", lost=True)),
  # The ps and the workers have the run, and the disk that fits counts.
  ("*", "*", matrix.Expectation("chief", "*", "*", "moved", _GOES_ON, "restart")),
  ("*", "*", matrix.Expectation("chief", "*", "*", "misled", _GOES_ON, "start")),
]


def expectation(cell: Cell, tensorflow: str) -> matrix.Expectation:
  """Returns what a cell promises on a TensorFlow."""
  major = tensorflow.partition(".")[0]
  for world, version, promised in PROMISES:
    if (world in ("*", cell.world) and version in ("*", major)
        and matrix.fits(promised[:4], cell.cell)):
      return promised
  return matrix.expectation(cell.cell)
