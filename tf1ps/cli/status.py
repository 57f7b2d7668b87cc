"""tf1ps-status: prints the status of a running job, which it asks a ps for.

It is no task of the cluster: it sends no heartbeat, and makes nothing on a ps.
"""

from __future__ import annotations

import sys

from absl import flags

from tf1ps.cli import app, tasks

FLAGS = flags.FLAGS
_SUMMARY = (
  "prints the status of a running job: its tasks, the load of its ps, its queues, and its last "
  "checkpoint. It needs the address of one ps, or the environment of a task. Exit code 1: no ps "
  "answered.")


def run(argv) -> int:
  """Prints the status; returns the exit code."""
  return app.run("status", _SUMMARY, list(argv), _show, needs_program=False, takes_names=True)


def ask(names, programs_name: str):
  """Asks the ps of --ps_hosts, or of the environment; returns the `Status`.

  Args:
    names: the arguments that are no flags: none are allowed.
    programs_name: of this program, for errors.
  """
  from tf1ps.cluster import resolve_cluster, split_hosts

  if names:
    raise app.UsageError("%r is not a flag: each argument begins with -- (see %s --help)" % (
      names[0], programs_name))
  addresses = split_hosts(FLAGS.ps_hosts)
  if not addresses:  # inside of a task's pod, the environment describes the job
    found = tasks.find_cluster(is_task=False)
    addresses = found and [task.address for task in resolve_cluster(**tasks.described(found)).ps]
  if not addresses:
    raise app.UsageError("--ps_hosts is missing: give the address of a ps of the job, host:port")
  app.prepare_tensorflow()
  from tf1ps.monitoring import ask_status

  return ask_status(addresses, FLAGS.start_timeout)


def _show(names) -> int:
  status = ask(names, "tf1ps-status")
  from tf1ps.monitoring import format_status, status_as_json

  print(status_as_json(status) if FLAGS.json else format_status(status))
  return 0


def main() -> None:
  """The console script."""
  app.leave(run(sys.argv[1:]))
