"""Runs a whole job on this machine: starts its tasks, watches them, ends them.

1. One process imports TensorFlow (`fork_server.ForkServer`).
2. Ports are chosen, the caller makes the tasks for these addresses, all are started.
3. The launcher waits. A worker that ends with 0 leaves the others alone. After the last worker,
   the ps and the evaluator have to leave by themselves, within a limit.
4. A task that found its port taken (`EXIT_PORT_TAKEN`) has all others ended, and 2. begins again.
5. The first task that fails ends the job: the workers are told first, so that they can save, and
   the ps and the evaluator when they have left. So does a signal to the launcher; a second signal
   kills whatever is left.
6. The last line tells how it went, and names what failed first, not what failed because of it.

3. and 5. are in `attempt`.
"""

from __future__ import annotations

import multiprocessing.connection
import os
import time
from typing import Callable, Dict, List, Optional, Sequence

from tf1ps.cluster import SignalQueue
from tf1ps.compat import EXIT_FAILED, TIMING
from tf1ps.launch import attempt as attempt_lib
from tf1ps.launch import fork_server, ports, tasks
from tf1ps.launch import screen as screen_lib


def run_local(make_tasks: Callable[[Dict[str, List[str]]], Sequence[tasks.LocalTask]],
              num_ps: int, num_workers: int, evaluator: bool, log_dir: Optional[str],
              preload: Sequence[str] = (), grace: float = 30.0, tries: int = 5,
              log: Callable[[str], None] = print, quiet: bool = True) -> int:
  """Runs the tasks of a job on this machine until all have ended.

  Must be called from the main thread: signals arrive there.

  Args:
    make_tasks: called with {"ps": ["127.0.0.1:port", ...], "worker": [...]}, and again with other
      ports if some were taken; returns the `LocalTask`s "ps 0", "worker 0", "evaluator 0", ...
    num_ps: number of ps, 0 or more.
    num_workers: number of workers, 1 or more.
    evaluator: whether there is an "evaluator 0", which has no address.
    log_dir: directory for one log file a task, made if it is not there; None for none.
    preload: names of the modules to import once for all tasks: "tensorflow.compat.v1".
    grace: seconds in which the ps must have left after the last worker ended.
    tries: how often the tasks are started when ports were taken meanwhile, 1 or more.
    log: shows one line.
    quiet: keep back what the imports print, unless one of them fails.

  Returns:
    The exit code: 0 if every task returned 0; 128 + n if signal n ended the launcher; else 1.

  Raises:
    ValueError: for arguments out of range, and for tasks other than announced or that no other
      process could run. Nothing is left running.
    OSError: if `log_dir` cannot be written.
  """
  for name, value, least in (("num_ps", num_ps, 0), ("num_workers", num_workers, 1),
                             ("tries", tries, 1), ("grace", grace, 0)):
    if not value >= least:
      raise ValueError("%s must be %d or more, not %r." % (name, least, value))
  if log_dir is not None:
    os.makedirs(log_dir, exist_ok=True)
  started = time.monotonic()
  screen = screen_lib.Screen(log)
  try:
    with SignalQueue() as interrupts, fork_server.ForkServer(
        preload, quiet) as server:
      outcome = _wait_ready(server, interrupts)
      for number in range(1, tries + 1):
        if outcome is None and interrupts.received:
          outcome = attempt_lib.interrupted(interrupts.received[0])
        if outcome is not None:
          break
        local_tasks = _make(make_tasks, num_ps, num_workers, evaluator)
        attempt = attempt_lib.Attempt(server, interrupts, screen, log_dir, grace)
        outcome = attempt.run(local_tasks)
        if outcome.port_taken and number < tries:
          screen.line(attempt_lib.PREFIX + "%s; starting all tasks again with new ports, try %d "
                      "of %d" % (outcome.text, number + 1, tries))
          outcome = None
  finally:
    screen.close()
  for line in outcome.report:
    screen.line(attempt_lib.PREFIX + line)
  text = {0: "ok, " + _count(num_ps, num_workers, evaluator),
          EXIT_FAILED: "failed: " + outcome.text}.get(outcome.exit_code, outcome.text)
  screen.line(attempt_lib.PREFIX + "%s, %.1f s" % (text, time.monotonic() - started))
  return outcome.exit_code


def _wait_ready(server, interrupts):
  """Waits for the imports; returns None, or the outcome if the job ends here."""
  end = time.monotonic() + TIMING.import_limit
  try:
    while not server.ready:
      left = end - time.monotonic()
      if left <= 0:
        return attempt_lib.failure("the imports took more than %g s" % TIMING.import_limit)
      multiprocessing.connection.wait([server, interrupts], left)
      interrupts.take()
      if interrupts.received:
        return attempt_lib.interrupted(interrupts.received[0])
      server.take()
  except (fork_server.PreloadError, fork_server.ForkServerLost) as error:
    *report, last = str(error).splitlines()
    return attempt_lib.failure(last, report)
  return None


def _make(make_tasks, num_ps, num_workers, evaluator):
  """Chooses ports and has the tasks made; returns the tasks."""
  addresses = ["127.0.0.1:%d" % port for port in ports.find_free_ports(num_ps + num_workers)]
  local_tasks = list(make_tasks({"ps": addresses[:num_ps], "worker": addresses[num_ps:]}))
  expected = ["ps %d" % i for i in range(num_ps)]
  expected += ["worker %d" % i for i in range(num_workers)]
  expected += ["evaluator 0"] if evaluator else []
  names = [task.name for task in local_tasks]
  if sorted(names) != sorted(expected):
    raise ValueError("The tasks to start should be %s, but are %s." % (
        ", ".join(expected), ", ".join(names) or "none"))
  return local_tasks


def _count(num_ps, num_workers, evaluator):
  """Returns "2 ps and 1 worker", "1 ps, 2 workers and 1 evaluator"."""
  parts = ["%d ps" % num_ps, "%d worker%s" % (num_workers, "" if num_workers == 1 else "s")]
  if evaluator:
    return "%s, %s and 1 evaluator" % tuple(parts)
  return " and ".join(parts)
