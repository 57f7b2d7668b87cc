"""The failure matrix as data: its cells, those that mean nothing, and what each promises.

A cell is one fault that hits one task in one phase of a job of one scheme. matrix_job.py makes it
happen with real processes, and matrix_page.py writes docs/survival.md from what was seen.
"""
from __future__ import annotations

import itertools
from typing import Dict, List, NamedTuple, Optional, Tuple

ROLES = ("ps", "chief", "worker", "evaluator")
PHASES = ("start", "initialising", "training", "saving", "end", "evaluating")
SCHEMES = ("async", "sync", "spare", "all_reduce")
FAULTS = ("killed", "stopped", "cut", "full")

# The process that a fault hits, and the one that shows that the phase is reached and waits there.
VICTIMS = {"ps": "ps 0", "chief": "worker 0", "worker": "worker 1", "evaluator": "evaluator 0"}
CHIEF = "worker 0"
_HOLDERS = {
  ("ps", "initialising"): CHIEF, ("ps", "training"): CHIEF, ("evaluator", "training"): CHIEF,
  ("ps", "end"): CHIEF, ("chief", "evaluating"): "evaluator 0"}

WORKERS = {"async": 2, "sync": 2, "spare": 3, "all_reduce": 2}
SCHEME_FLAGS: Dict[str, List[str]] = {
  "async": [], "sync": ["--sync_replicas"],
  "spare": ["--sync_replicas=2"],
  "all_reduce": ["--replication=all_reduce"]}
GRADIENTS = {"async": 1, "sync": 2, "spare": 2, "all_reduce": 2}  # in an update

STEPS = 160  # of the job: the global step at its end
SAVE_STEPS = 25
LOST_STEPS = SAVE_STEPS + 15  # at most: a checkpoint comes a few steps late on a busy machine
BATCH = 10


class Pace(NamedTuple):
  """How long a cell's waits are, in seconds."""
  name: str
  heartbeat_timeout: float
  start_timeout: float
  stop: float  # how long a task is stopped
  step: float  # how long a step lasts until the cell's event is over
  room: float  # what a limit gets on top, on a busy machine


# A stop lasts two thirds of the heartbeat timeout in both.
QUICK = Pace("quick", 6.0, 20.0, 4.0, 0.08, 20.0)
FULL = Pace("full", 30.0, 60.0, 20.0, 0.1, 20.0)
PACES = {pace.name: pace for pace in (QUICK, FULL)}


class Cell(NamedTuple):
  """One cell."""
  role: str
  phase: str
  scheme: str
  fault: str

  @property
  def name(self) -> str:
    return "-".join(self)

  @property
  def victim(self) -> str:
    return VICTIMS[self.role]

  @property
  def holder(self) -> str:
    if self.phase in ("saving", "evaluating"):
      return _HOLDERS.get((self.role, self.phase), CHIEF)
    return _HOLDERS.get((self.role, self.phase), self.victim)


def servers(scheme: str) -> List[str]:
  """Returns the tasks of a job but the evaluator, in the order of their start."""
  return ["ps 0"] * (scheme != "all_reduce") + [
    "worker %d" % index for index in range(WORKERS[scheme])]


class Stage(NamedTuple):
  """Faults that come at once."""
  cells: Tuple[Cell, ...]
  holds: Dict[str, str]  # the tasks that wait for them, and the place in which each of them waits


def stages(cell: Cell) -> List[Stage]:
  """Returns the only stage of a cell."""
  return [Stage((cell,), {cell.holder: cell.phase})]


ALL = [Cell(*each) for each in itertools.product(ROLES, PHASES, SCHEMES, FAULTS)]


def meaningless(cell: Cell) -> Optional[str]:
  """Says why a cell means nothing; None if it has a meaning."""
  if cell.role == "ps" and cell.scheme == "all_reduce":
    return "all-reduce has no ps"
  if cell.role == "evaluator" and cell.fault == "cut":
    return "an evaluator only reads the directory"
  if cell.role == "evaluator" and cell.phase == "saving":
    return "an evaluator saves nothing"
  if cell.role == "worker" and cell.phase == "evaluating" and cell.fault != "killed":
    return "the worker has ended by then"
  return None


CELLS = [cell for cell in ALL if meaningless(cell) is None]


class Expectation(NamedTuple):
  """What the cells of one class promise; the first class that fits a cell counts.

  The parts of a cell are words of ROLES, PHASES, SCHEMES and FAULTS, or "*".
  """
  role: str
  phase: str
  scheme: str
  fault: str
  goes_on: bool  # every task ends with 0, and the job is whole; else it fails
  within: str  # a limit of `limits`: until all tasks train on, or until the last one has ended
  lost: bool = False  # what came after the last checkpoint may be lost; else no step is
  failing: Tuple[str, ...] = (CHIEF,)  # they end with 1, and name the victim if they are others
  victim_fails: bool = True  # the victim ends with 1 too
  names: str = ""  # what those last lines name, if that is not the victim


def limits(pace: Pace) -> Dict[str, float]:
  """Returns the seconds of each limit that an expectation may name."""
  return {
    "restart": 10.0 + pace.room,  # a process starts, joins, and may restore
    "stop": pace.stop + 5.0 + pace.room,
    "at once": 5.0 + pace.room,
    "loss": 2 * pace.heartbeat_timeout + 5.0 + pace.room,  # silence, and a session that is given up
    "start": pace.start_timeout + pace.heartbeat_timeout + 5.0 + pace.room}


GOES_ON, FAILS = True, False
_NO_SPACE = "No space left on device"
EXPECTATIONS = (
  Expectation("*", "*", "*", "stopped", GOES_ON, "stop"),
  Expectation("evaluator", "*", "*", "killed", GOES_ON, "restart"),
  Expectation("*", "start", "*", "killed", GOES_ON, "restart"),
  Expectation("*", "initialising", "*", "killed", GOES_ON, "restart"),
  Expectation("worker", "evaluating", "*", "killed", GOES_ON, "restart"),
  # Mirrored variables go back to the checkpoint with every loss, until the last one is saved.
  Expectation("worker", "end", "all_reduce", "killed", GOES_ON, "restart"),
  Expectation("*", "*", "all_reduce", "killed", GOES_ON, "restart", lost=True),
  Expectation("ps", "*", "*", "killed", GOES_ON, "restart", lost=True),
  Expectation("*", "*", "*", "killed", GOES_ON, "restart"),
  Expectation("*", "start", "*", "cut", FAILS, "start"),
  Expectation("*", "initialising", "*", "cut", FAILS, "start"),
  # The chief has done all that was asked for, and so has a worker that cannot say so.
  Expectation("ps", "evaluating", "*", "cut", FAILS, "loss", failing=()),
  Expectation("worker", "end", "*", "cut", FAILS, "loss", victim_fails=False),
  Expectation("*", "*", "*", "cut", FAILS, "loss"),
  # No job starts without room for a checkpoint, and none ends well without its last one.
  *(Expectation(role, phase, "*", "full", FAILS, limit, victim_fails=False, names=_NO_SPACE)
    for role in ("ps", "chief") for phase, limit in (
      ("start", "start"), ("initialising", "start"), ("end", "loss"))),
  Expectation("chief", "evaluating", "*", "full", FAILS, "loss", victim_fails=False,
              names=_NO_SPACE),
  # The run's file cannot say that the job has ended.
  Expectation("ps", "evaluating", "*", "full", FAILS, "loss", victim_fails=False, names=_NO_SPACE),
  Expectation("*", "*", "*", "full", GOES_ON, "restart"),
)

# Cells that do not do what their class promises, with the reason. A test that begins to pass says
# so, and the line here goes. Those of SOMETIMES may pass.
KNOWN_FAILING: Dict[Tuple[str, str, str, str], str] = {}
SOMETIMES: List[Tuple[str, str, str, str]] = []


def expectation(cell: Cell) -> Expectation:
  """Returns what a cell promises."""
  return next(each for each in EXPECTATIONS if fits(each[:4], cell))


class Promise(NamedTuple):
  """What a run promises, in its own figures."""
  goes_on: bool
  seconds: float  # until all tasks train on, or until the last one has ended
  steps: range  # of the last checkpoint
  lost_steps: int  # at most
  failing: Dict[str, Tuple[str, ...]]  # tasks that end with 1; a last line has one of the words


def promise(cell: Cell, pace: Pace, promised: Optional[Expectation] = None) -> Promise:
  """Returns what a cell promises in a run; None: the expectation of the table."""
  promised = promised or expectation(cell)
  # At the end of synchronous training no worker may be left that makes lost steps again.
  is_short = promised.lost and (cell.phase, cell.scheme) in (("end", "sync"), ("end", "spare"))
  least = STEPS - (LOST_STEPS if is_short else 0)
  failing: Dict[str, Tuple[str, ...]] = {}
  if not promised.goes_on:
    for name in [*promised.failing, *[cell.victim] * promised.victim_fails]:
      words = promised.names or name != cell.victim and full_name(cell.victim)
      failing[name] = (words,) if words else ()
  return Promise(promised.goes_on, limits(pace)[promised.within],
                 range(least, STEPS + WORKERS[cell.scheme]),
                 LOST_STEPS if promised.lost else 0, failing)


def full_name(task: str) -> str:
  """Returns "/job:ps/task:0" for "ps 0"."""
  return "/job:%s/task:%s" % tuple(task.split())


def fits(pattern: Tuple[str, ...], cell: Cell) -> bool:
  """Whether a cell is one of those that a pattern with "*" names."""
  return all(part in ("*", own) for part, own in zip(pattern, cell))


def known_failing(cell: Cell) -> Optional[str]:
  """Returns why a cell does not do what it promises; None if it does."""
  return next((reason for pattern, reason in KNOWN_FAILING.items() if fits(pattern, cell)), None)


# What `make test-slow` runs of them.
KINDS = [cell for cell in CELLS if (cell.phase, cell.scheme) == ("training", "async")]
