"""Another worker's wait for the chief: until it has initialised the run, or cannot any more."""

from __future__ import annotations

import logging
import time
from typing import Callable, List

from tf1ps.cluster import TaskUnavailableError, probe_tasks
from tf1ps.compat import TIMING
from tf1ps.session import initialise
from tf1ps.session import participation as participation_lib
from tf1ps.session import signature as signature_lib

_log = logging.getLogger("tf1ps")


def await_chief(part: participation_lib.Participation, signature: List[list], start_timeout: float,
                max_wait_secs: float, interrupted: Callable[[], None]) -> None:
  """Waits for the chief's run, and joins it.

  Args:
    part: this task's.
    signature: of this task's graph.
    start_timeout: seconds without a sign of the chief until it counts as missing.
    max_wait_secs: seconds that a chief which is there may take.
    interrupted: called in the wait; it raises when the wait shall end.

  Raises:
    readiness.TaskUnavailableError: the chief is missing.
    initialise.SessionCreationError: it has taken too long.
    participation.ClusterMismatchError, signature.GraphMismatchError: it was started otherwise.
  """
  chief = part.cluster.chief
  began, said = time.monotonic(), 0.0
  last_sign = began
  while True:
    found = part.find_run()
    if found is not None:
      part.compare_with(chief, found.jobs)
      signature_lib.compare(
        signature, found.signature, part.cluster.task.name, chief.name)
      part.join(found)
      return
    now = time.monotonic()
    member = part.chief_member()
    if member is not None and not member.has_ended and member.age < 5.0:
      last_sign = now
    if now - last_sign > start_timeout:
      raise TaskUnavailableError(
        probe_tasks([chief]), now - began, "the chief has initialised no run")
    if now - began > max_wait_secs:
      raise initialise.SessionCreationError(
        "%s has not initialised the run within %.0f s (max_wait_secs)" % (
          chief.name, max_wait_secs))
    if now - began > 1.0 and now - said > 5.0:
      said = now
      state = "has not come" if member is None else "is %s" % member.state
      _log.warning("waiting for the chief %s at %s to initialise (it %s)",
                   chief.name, chief.address, state)
    interrupted()
    time.sleep(TIMING.poll_interval)
