"""Pairs of faults as data: those that are drawn, those that mean nothing, and what each promises.

A pair is two cells of the failure matrix (matrix.py) in one job. Either both faults come at once,
or the second one comes during the recovery from the first. What a pair promises follows from what
its cells promise, by the rules of `promise`.
"""
from __future__ import annotations

import itertools
import random
import statistics
from typing import Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from tests.survival import matrix
from tests.survival.matrix import CHIEF, Cell, Stage

MOMENTS = {"at_once": "at once", "recovery": "recovery"}
SCHEMES = ("async", "sync", "spare", "all_reduce")

# What a task that was killed does during its recovery, and the place of matrix_program.py in which
# it waits for the second fault: the chief brings variables onto a new ps.
_RECOVERIES = {"ps": (CHIEF, "variables"), "chief": (CHIEF, "model"),
               "worker": ("worker 1", "model"), "evaluator": ("evaluator 0", "program")}


class Pair(NamedTuple):
  """Two faults of one job."""
  moment: str
  first: Cell
  second: Cell

  @property
  def name(self) -> str:
    return "%s-%s-%s-%s" % (self.moment, self.first.scheme, "_".join(
      [self.first.role, self.first.phase, self.first.fault]), "_".join(
        [self.second.role, self.second.phase, self.second.fault]))

  @property
  def stages(self) -> List[Stage]:
    """What matrix_job.py makes of it."""
    first, second = self.first, self.second
    holds = {first.holder: first.phase}
    if (first.role, first.phase) == ("chief", "evaluating"):
      holds[CHIEF] = "training"  # while the evaluator evaluates
    others = _others(first, second, self.moment)
    if self.moment == "at_once":
      return [Stage((first, second), dict(others, **holds))]
    later = {task: place for task, place in others.items() if (task, place) not in holds.items()}
    if first.fault == "killed" and (first.role, first.phase) != ("ps", "evaluating"):
      later.update([_RECOVERIES[first.role]])
    return [Stage((first,), holds), Stage((second,), later)]


def _others(first: Cell, second: Cell, moment: str) -> Dict[str, str]:
  """The holds that have the second fault meet the same phase in each run, fast or slow."""
  if first.role == "evaluator" and first.phase in ("start", "initialising"):
    return {CHIEF: "training"}
  if first.scheme == "all_reduce" and first.phase == second.phase == "end" and (
      first.role != second.role):
    # A worker's end follows the chief's last checkpoint: it waits in its loop before.
    return {CHIEF: "evaluation"} if (first.role, first.fault) == ("worker", "full") else {}
  if moment == "at_once":
    return {second.holder: second.phase} if second.phase == first.phase else {}
  if first.role == "worker" and first.phase in ("start", "initialising"):
    return {CHIEF: "initialising"}
  if first.phase == second.phase == "end":
    return {second.holder: "end"}
  if first.phase == "evaluating" and first.role != "chief":
    return {CHIEF: "evaluation"}
  return {}


def _phase_of_second(first: Cell, role: str) -> Optional[str]:
  """The phase of another role's task in the phase of the first fault; None if it has ended."""
  if role == first.role:
    return first.phase
  if role == "evaluator":  # it has no checkpoint yet, or waits for the next one
    return {"initialising": "start", "saving": "training", "end": "training"}.get(
      first.phase, first.phase)
  if first.role == "evaluator" and first.phase == "end":
    return None
  if (first.role, first.phase) == ("chief", "evaluating") or (
      first.role == "evaluator" and first.phase in ("start", "initialising")):
    return "training"
  if (role, first.phase) == ("chief", "evaluating"):
    return "end"
  return first.phase


def _all() -> List[Pair]:
  found = []
  for moment, first in itertools.product(MOMENTS, matrix.CELLS):
    for role, fault in itertools.product(matrix.ROLES, matrix.FAULTS):
      phase = _phase_of_second(first, role)
      if first.scheme in SCHEMES and phase is not None:
        found.append(Pair(moment, first, Cell(role, phase, first.scheme, fault)))
  return found


def meaningless(pair: Pair) -> Optional[str]:
  """Says why a pair means nothing; None if it has a meaning."""
  first, second = pair.first, pair.second
  reason = matrix.meaningless(second)
  if reason is not None:
    return reason
  if (first.phase, second.role, second.phase) == ("evaluating", "chief", "end") and (
      second.fault in ("cut", "full")):
    return "the chief evaluates, and no cell has this fault of it then"
  if pair.moment == "at_once":
    if first.role == second.role:
      return "one task has one fault at a time"
    if (matrix.ROLES.index(first.role) > matrix.ROLES.index(second.role)
        and _phase_of_second(second, first.role) == first.phase):
      return "it is the same pair in another order"
    if {first.role, second.role} == {"ps", "chief"} and first.fault == second.fault == "full":
      return "they share the disk"
    return None
  if first.fault == "cut":
    return "a pulled cable stays out"
  if not matrix.expectation(first).goes_on:
    return "a job that fails recovers from nothing"
  if (first.role, first.phase) == ("worker", "evaluating"):
    return "a worker that has done its part only leaves"
  if first.role == second.role == "worker" and (first.phase, first.fault) == ("end", "full"):
    return "the worker has ended when its full disk is felt"
  if first.role == second.role and first.fault == second.fault == "stopped":
    return "it is one longer stop"
  return None


ALL = _all()
PAIRS = [pair for pair in ALL if meaningless(pair) is None]


def sometimes_fails(pair: Pair) -> Optional[str]:
  """Says why a pair may fail where its promise is that it goes on; None if it may not."""
  hit = {(cell.role, cell.phase, cell.fault) for cell in (pair.first, pair.second)}
  if pair.first.scheme != "async" and hit == {("ps", "end", "killed"), ("chief", "end", "killed")}:
    return "no worker is left to make the steps after the last checkpoint again with the new chief"
  return None


def draw(seed: int, count: int) -> List[Pair]:
  """Returns so many pairs, each of them once."""
  return random.Random(seed).sample(PAIRS, count)


def promise(pair: Pair, pace: matrix.Pace) -> matrix.Promise:
  """Returns what a pair promises.

  - It goes on if it goes on after each of its faults alone. A chief that is started again on a full
    disk has the promise of a start.
  - The limit is the sum of both, because one recovery may begin anew after the other. In a job that
    fails, a task that is started again has the whole start to find that out.
  - It may lose the steps that one of the faults may cost; behind a full disk also those before the
    checkpoint for which there was no room.
  - If it fails, the tasks that each fault lets fail end with 1. Their last lines name one of the
    victims, or what the last line after one of the faults alone names.
  """
  alone = [matrix.promise(cell, pace) for cell in _as_met(pair)]
  goes_on = all(each.goes_on for each in alone)
  seconds = -pace.room
  for cell, each in zip((pair.first, pair.second), alone):
    is_start = cell.fault == "killed" and not goes_on
    seconds += matrix.limits(pace)["start"] if is_start else each.seconds
  lost = max(each.lost_steps for each in alone)
  if lost and any(cell.fault == "full" and cell.role in ("ps", "chief")
                  for cell in (pair.first, pair.second)):
    lost += matrix.SAVE_STEPS
  failing: Dict[str, Tuple[str, ...]] = {}
  words = {matrix.full_name(cell.victim) for cell in (pair.first, pair.second)}
  words.update(*[each for one in alone for each in one.failing.values()])
  for one in alone:
    for task, own in one.failing.items():
      names_nothing = not own or failing.get(task) == ()
      failing[task] = () if names_nothing else tuple(sorted(words))
  return matrix.Promise(
    goes_on, seconds, min((each.steps for each in alone), key=min), lost, failing)


def _as_met(pair: Pair) -> List[Cell]:
  """The cells whose promises count."""
  cells = [pair.first, pair.second]
  for index, (cell, other) in enumerate(zip(cells, reversed(cells))):
    is_start = (other.role, other.fault) == ("chief", "killed") and (
      pair.moment == "at_once" or other is pair.first)
    if is_start and cell.fault == "full" and cell.role in ("ps", "chief"):
      cells[index] = cell._replace(phase="start")
  return cells


# The results, in the page.

def row(pair: Pair, seen, found: Sequence[str], pace: matrix.Pace, tensorflow: str,
        date: str) -> dict:
  """The row of a pair's run; `seen` is None if the faults could not be made."""
  one = dict(pair._asdict(), first=pair.first.name, second=pair.second.name,
             tensorflow=tensorflow, pace=pace.name, date=date, problems=list(found))
  if seen is not None:
    one.update(outcome=seen.outcome, seconds=round(seen.effect, 1), lost_steps=seen.lost_steps,
               pair_seconds=round(seen.seconds, 1))
  return one


def merged(rows: Sequence[dict]) -> List[dict]:
  """Returns the rows of pairs that have a meaning, the newest of each, in their order."""
  latest = {(pair_of(one), one["tensorflow"]): one for one in rows}
  order = {pair: number for number, pair in enumerate(PAIRS)}
  return [latest[key] for key in sorted(
    (key for key in latest if key[0] in order), key=lambda key: (order[key[0]], key[1]))]


def pair_of(one: dict) -> Pair:
  """The pair of a row."""
  return Pair(one["moment"], *(Cell(*one[name].split("-")) for name in ("first", "second")))


def tables(rows: Sequence[dict]) -> List[str]:
  """The lines of the page: a table by moments and schemes, one by roles, and those that fail."""
  lines = ["|moment|scheme|TensorFlow|%s|" % "|".join(
    "%s|median s|worst s" % word for word in ("go on", "fail")), "|" + "-|" * 9]
  versions = sorted({one["tensorflow"] for one in rows}, reverse=True)
  for moment, scheme, version in itertools.product(MOMENTS, SCHEMES, versions):
    parts = [MOMENTS[moment], scheme, version]
    for outcome in ("goes on", "fails"):
      seconds = [one["seconds"] for one in rows if (
        one["moment"], pair_of(one).first.scheme, one["tensorflow"], one.get("outcome")) == (
          moment, scheme, version, outcome)]
      parts += [str(len(seconds)), *(
        ["%.1f" % statistics.median(seconds), "%.1f" % max(seconds)] if seconds else ["–"] * 2)]
    lines.append("|%s|" % "|".join(parts))
  lines += ["", "|first, second|%s|" % "|".join(matrix.ROLES), "|" + "-|" * 5]
  for role in matrix.ROLES:
    lines.append("|%s|%s|" % (role, "|".join(
      str(sum((pair_of(one).first.role, pair_of(one).second.role) == (role, other)
              for one in rows)) for other in matrix.ROLES)))
  return lines + [""] + (["- `%s` on %s: %s." % (
    pair_of(one).name, one["tensorflow"],
    sometimes_fails(pair_of(one)) or "; ".join(one["problems"]).rstrip(".:"))
    for one in rows if one["problems"]] or ["Each did what it promised."])


def roles_and_phases(chosen: Sequence[Pair]) -> Set[Tuple[str, str]]:
  """The roles and phases that some pairs have."""
  return {(cell.role, cell.phase) for pair in chosen for cell in (pair.first, pair.second)}
