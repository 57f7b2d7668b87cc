"""Chooses the injections of a run from its seed.

An injection is a fault, the role that it hits, and the phase of the job at that moment:

  starting   the task has begun, and has made no step yet
  training   the task makes steps
  saving     the chief saves a checkpoint
  ending     the loop of the task (for a ps: of the chief) has ended, and its report has not come

The plan is a shuffled list of all combinations of the first three, again and again. So a run that
is long enough has each of them, and the report can fail a run in which one is missing. A job ends
once: `at_end` chooses its one injection.
"""

from __future__ import annotations

import random
from typing import Iterator, List, NamedTuple, Optional, Sequence

ENDING = "ending"
ROLES = ("ps", "chief", "worker")
PHASES = ("starting", "training", "saving")
NUM_PS, NUM_WORKERS = 2, 3
WAIT_LIMIT = 60.0  # seconds for a job to recover from an injection
CLIENTS = ("producer 0", "consumer 0", "consumer 1")


class Injection(NamedTuple):
  """A fault at a moment of the job."""

  fault: str  # kill, stop, cut, slow, disk
  role: str  # of the first target: ps, chief, worker, client, job
  phase: str  # see above; "running" for clients
  targets: Sequence[str]  # tasks, in the order in which the fault hits them
  healed: Sequence[str]  # the same tasks, in the order in which the fault leaves them
  seconds: float  # between the fault and its end; 0 for a kill
  delay: float  # between the moment that the phase begins and the fault


def cells(has_network: bool = True, has_disk: bool = True) -> List[tuple]:
  """Returns all combinations of (fault, role, phase) that a run can have."""
  faults = ["kill", "stop"] + (["cut", "slow"] if has_network else [])
  found = [(fault, role, phase) for fault in faults for role in ROLES for phase in PHASES]
  found += [(fault, "client", "running") for fault in ("kill", "stop")]
  return found + ([("disk", "job", "training")] if has_disk else [])


def tasks_of(role: str) -> List[str]:
  """Returns the tasks of a role."""
  return {"ps": ["ps %d" % index for index in range(NUM_PS)], "chief": ["worker 0"],
          "worker": ["worker %d" % index for index in range(1, NUM_WORKERS)],
          "client": list(CLIENTS), "job": ["ps 0"]}[role]


def injections(seed: int, job: str, possible: Sequence[tuple],
               longest: float = 8.0) -> Iterator[Injection]:
  """Yields the injections of a job, without end.

  Args:
    seed: the seed of the run.
    job: the name of the job; each job of a run has injections of its own.
    possible: the combinations, from `cells`.
    longest: the longest fault in seconds.
  """
  draw = random.Random("%d %s" % (seed, job))
  while True:
    order = list(possible)
    draw.shuffle(order)
    for fault, role, phase in order:
      targets = [draw.choice(tasks_of(role))]
      if fault in ("cut", "slow") and draw.random() < 0.5:  # several links, one after the other
        others = [task for each in ROLES for task in tasks_of(each) if task not in targets]
        targets += draw.sample(others, draw.choice([1, 2]))
      healed = list(targets)
      draw.shuffle(healed)
      seconds = 0.0 if fault == "kill" else round(draw.uniform(1.0, longest), 2)
      yield Injection(fault, role, phase, targets, healed, seconds, round(draw.uniform(0, 0.5), 3))


def at_end(seed: int, job: str, only: Optional[Sequence[str]] = None,
           longest: float = 8.0) -> Optional[Injection]:
  """Returns the injection of a job's end; None if `only`, a list of faults, has none of them."""
  draw = random.Random("%d %s end" % (seed, job))
  possible = [(fault, role) for fault in ("kill", "stop") for role in ROLES
              if only is None or fault in only]
  if not possible:
    return None
  fault, role = draw.choice(possible)
  targets = [draw.choice(tasks_of(role))]
  seconds = 0.0 if fault == "kill" else round(draw.uniform(1.0, longest), 2)
  return Injection(fault, role, ENDING, targets, targets, seconds, 0.0)
