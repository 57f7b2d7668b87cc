from __future__ import annotations

import pytest

from tests.survival import metadata, metadata_job
from tf1ps.checkpoint import CheckpointError
from tf1ps.session.run_directory import DirectoryInUseError

# What names the file in an error or a line; in the last column of the page, the other job.
NAMES = {"state": "checkpoint", "run": "tf1ps-run.json", "examples": ".examples.json",
         "epochs": ".epochs.json", "ranges": ".ranges.json", "best": "best/model.ckpt-2",
         "memory": "best/model.ckpt-2"}


def problems(cell, seen):
  """Returns where a cell did not do what it promises, as sentences."""
  outcome, found = metadata.expectation(cell), []
  name = NAMES.get(cell.file)
  if outcome == metadata.REFUSED:
    if not isinstance(seen.error, (CheckpointError, DirectoryInUseError)):
      found.append("it was not refused: %r" % seen.error)
    elif "tf1ps-metadata-" not in str(seen.error):
      found.append("the error names no file: %s" % seen.error)
    if seen.begun is not None or seen.ended not in (0, metadata_job.CUT_AT - 1):
      found.append("it trained")
    if cell.file == "run" and seen.is_ours:
      found.append("it took the directory")
    return found
  if seen.error is not None:
    return ["it ended with %r" % seen.error]
  says = [line for line in seen.said if name and name in line and "restored " not in line]
  if outcome in (metadata.SAYS, metadata.BACK, metadata.OLDER) and not says:
    found.append("no line names the file")
  if cell.file in ("best", "memory"):
    return found + ["the best is of step %s" % seen.begun] * (seen.begun != 2)
  if seen.begun != (4 if outcome == metadata.OLDER else begins(cell.file)):
    found.append("it began at step %s" % seen.begun)
  ended, more = metadata_job.ENDS[cell.file]
  if not (ended < seen.ended <= ended + more if outcome == metadata.BACK else
          seen.ended == ended):
    found.append("it ended at step %d" % seen.ended)
  return found


def begins(file):
  """The global step of the last checkpoint of the first process."""
  return metadata_job.LAST if file in ("epochs", "ranges") else metadata_job.CUT_AT - 1


FAST = ["state-garbage-nobody", "run-garbage-others", "best-garbage-nobody"]


def chosen():
  """All cells."""
  assert set(FAST) <= {cell.name for cell in metadata.CELLS}
  for cell in metadata.CELLS:
    yield pytest.param(cell, id=cell.name,
                       marks=[pytest.mark.slow] if cell.name not in FAST else [])


@pytest.mark.parametrize("cell", list(chosen()))
def test_a_cell_does_what_it_promises(cell):
  seen = metadata_job.see(cell)
  found = problems(cell, seen)
  assert not found, "%s: %s" % (found, seen)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["state", "examples", "epochs", "ranges"])
def test_without_a_fault_the_job_makes_its_steps(file):
  seen = metadata_job.see(metadata.Cell(file, "none", "nobody"))
  assert (seen.error, seen.begun, seen.ended) == (None, begins(file), metadata_job.ENDS[file][0])
  assert not [line for line in seen.said if ".json" in line]


@pytest.mark.any_tensorflow
def test_every_cell_has_a_meaning_or_a_reason():
  assert len(metadata.ALL) == len(metadata.FILES) * len(metadata.FAULTS) * len(metadata.MOMENTS)
  assert all(metadata.expectation(cell) for cell in metadata.CELLS)
  assert len(metadata.CELLS) == 7 * (2 + 3 + 1 + 1 + 1) + 6 * 3
