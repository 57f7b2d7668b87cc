"""Runs a whole job on this machine.

1. One process imports TensorFlow (`fork_server.ForkServer`).
2. The launcher chooses ports, the caller makes the tasks for these addresses, and the launcher
   starts all tasks.
3. `watch.Watch` waits for their ends, starts a failed task again, and ends the job.
4. If the port of a task was taken (`EXIT_PORT_TAKEN`), the launcher ends the other tasks, and
   begins again at 2.
5. The last line says how the job ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import Any, Callable, Dict, List, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import EXIT_FAILED, TIMING
from tf1ps.launch.fork_server import ForkServer, ForkServerLost, LocalTask, PreloadError
from tf1ps.launch.job import Job, JobOutcome, count_tasks, describe_tasks, plural
from tf1ps.launch.output import Screen
from tf1ps.launch.ports import find_free_addresses
from tf1ps.launch.watch import Watch, failure, interrupted, show_end

_PREFIX = "tf1ps-local: "


def local_job(num_ps: int, num_workers: int, evaluator: bool = False, grace: float = 30.0,
              save_limit: float = 0.0, max_restarts: int = 0, folds: bool = True,
              **logs: Any) -> Job:
  """Describes a job on this machine.

  Args:
    num_ps, num_workers: the number of ps, 0 or more, and the number of workers, 1 or more.
    evaluator: whether there is an "evaluator 0", which has no address.
    grace, max_restarts, folds: as in `Job`.
    save_limit: seconds that a chief may need to save and leave after a signal to the launcher.
    **logs: `log_dir` and `keeps_logs`, as in `Job`.

  Raises:
    ValueError: an argument is out of range.
  """
  for name, value, least in (("num_ps", num_ps, 0), ("num_workers", num_workers, 1),
                             ("grace", grace, 0), ("max_restarts", max_restarts, 0)):
    if not value >= least:
      raise ValueError("%s must be %d or more, got %r" % (name, least, value))
  return Job(
    describe_tasks(num_ps, num_workers, evaluator), _PREFIX, grace,
    end_limit=TIMING.workers_end_limit, signalled_limit=max(
      TIMING.workers_end_limit_after_signal, save_limit + TIMING.killed_limit),
    others_limit=TIMING.others_end_limit, killed_limit=TIMING.killed_limit,
    output_limit=TIMING.output_limit, max_restarts=max_restarts, folds=folds, **logs)


def run_tasks(job: Job, make_tasks: Callable[[Dict[str, List[str]]], Sequence[LocalTask]],
              preload: Sequence[str] = (), tries: int = 5,
              log: Callable[[str], None] = print, says_why: bool = True) -> JobOutcome:
  """Runs the tasks of a job on this machine until all have ended.

  Call it from the main thread, where signals arrive.

  Args:
    job: the result of `local_job`. Its log directory is made if absent. If it folds output, the
      output of the imports is held back unless an import fails.
    make_tasks: called with {"ps": ["127.0.0.1:port", ...], "worker": [...]}, and called again with
      other ports if some ports were taken; returns the `LocalTask`s "ps 0", "worker 0",
      "evaluator 0", ...
    preload: names of the modules to import once for all tasks: "tensorflow.compat.v1".
    tries: the most starts of the job, 1 or more: if a port was taken, the job is started again.
    log: shows a line.
    says_why: False: the caller reports the reason for a failure.

  Returns:
    The `JobOutcome`.

  Raises:
    ValueError: `tries` is below 1, `make_tasks` returns other tasks, or another process cannot run
      these tasks. No process is left running.
    OSError: the log directory cannot be written.
  """
  if tries < 1:
    raise ValueError("tries must be 1 or more, got %r" % (tries,))
  tasks, log_dir = job.tasks, job.log_dir
  if log_dir is not None:
    os.makedirs(log_dir, exist_ok=True)
  began = time.monotonic()
  screen = Screen(log)
  outcome = None
  try:
    with SignalQueue() as interrupts, ForkServer(preload, job.folds) as server:
      outcome = _wait_ready(server, interrupts)
      for number in range(1, tries + 1):
        if outcome is None and interrupts.received:
          outcome = interrupted(interrupts)
        if outcome is not None:
          break
        started = job._replace(tasks=_make(make_tasks, tasks))
        outcome = Watch(started, server, interrupts, screen).run()
        if outcome.port_taken and number < tries:
          screen.line(_PREFIX + "%s; starting all tasks again with new ports, try %d "
                      "of %d" % (outcome.text, number + 1, tries))
          outcome = None
  finally:
    screen.close()
    if log_dir is not None and not job.keeps_logs:
      if outcome is not None and not outcome.exit_code:
        shutil.rmtree(log_dir, ignore_errors=True)
      with contextlib.suppress(OSError):  # the directory is gone, or has logs
        os.rmdir(log_dir)
  text = outcome.text
  if not outcome.exit_code:
    text = "ok, " + count_tasks(tasks) + (
      ", " + plural(outcome.restarts, "restart") if outcome.restarts else "")
  elif outcome.exit_code == EXIT_FAILED:
    text = "failed: " + outcome.text if says_why else "failed"
  if outcome.exit_code and log_dir is not None and os.path.isdir(log_dir):
    text += "" if log_dir in text else "; logs in %s" % log_dir
  show_end(screen, _PREFIX, outcome, text, began,
           not outcome.is_shown and (says_why or not outcome.exit_code))
  return outcome


def _wait_ready(server, interrupts):
  """Waits for the imports; returns None, or the outcome if the job ends here."""
  end = time.monotonic() + TIMING.import_limit
  try:
    while not server.ready:
      left = end - time.monotonic()
      if left <= 0:
        return failure("the imports took more than %g s" % TIMING.import_limit)
      server.wait(interrupts, left)
      interrupts.take()
      if interrupts.received:
        return interrupted(interrupts)
      server.take()
  except (PreloadError, ForkServerLost) as error:
    *report, last = str(error).splitlines()
    return failure(last, report)
  return None


def _make(make_tasks, tasks):
  """Chooses ports and returns the caller's tasks for them."""
  num_ps, num_workers = ([task.job for task in tasks].count(job) for job in ("ps", "worker"))
  addresses = find_free_addresses(num_ps + num_workers)
  local_tasks = list(make_tasks({"ps": addresses[:num_ps], "worker": addresses[num_ps:]}))
  expected, names = [[task.name for task in each] for each in (tasks, local_tasks)]
  if sorted(names) != sorted(expected):
    raise ValueError("make_tasks must return %s, got %s" % (
      ", ".join(expected), ", ".join(names) or "no task"))
  return local_tasks
