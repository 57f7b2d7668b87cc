"""tf1ps-reset: clears containers on each task of a cluster, and ends no session.

It is not a task of the cluster. It checks all names first. Then it prints one line per task: the
containers that it cleared and the queues that it closed first, or the reason why it cleared none.
"""

from __future__ import annotations

import sys
import time

from absl import flags

from tf1ps.cli import app, tasks

FLAGS = flags.FLAGS
_SUMMARY = (
  "clears containers on each task of a cluster, and ends no session. Usage: tf1ps-reset NAME... "
  'and flags, where NAME is a job\'s --container, or "default" for the default container. Calls '
  "that wait at queues of tf1ps in them end first. Exit code 1: a task was not cleared.")


def run(argv) -> int:
  """Clears containers; returns the exit code."""
  return app.run("reset", _SUMMARY, list(argv), _reset, needs_program=False, takes_names=True)


def _reset(names) -> int:
  if not names:
    raise app.UsageError('the names of the containers are missing: give them, or "default"')
  app.prepare_tensorflow()
  from tf1ps.state import ResetError, reset_containers

  began = time.monotonic()
  try:
    results = reset_containers(_target(), names, queues=FLAGS.queues or [])
  except ResetError as error:
    results = error.results
  for result in results:
    print("%s at %s: %s" % (result.task.name, result.task.address, _say(result)))
  cleared = sum(not result.error for result in results)
  code = 0 if cleared == len(results) else 1
  app.last_line("reset: %d of %d tasks cleared, %.1f s" % (
    cleared, len(results), time.monotonic() - began), code)
  return code


def _say(result) -> str:
  closed = ", queues closed first: %s" % ", ".join(result.queues) if result.queues else ""
  if result.error:
    return "not cleared: %s%s" % (result.error, closed)
  return "cleared %s%s" % (", ".join(result.containers), closed)


def _target():
  """The cluster of the flags, of TF_CONFIG or of a scheduler, or --target."""
  from tf1ps.cluster import from_cluster_spec, resolve_cluster, split_hosts

  hosts = {job: split_hosts(FLAGS[job + "_hosts"].value) for job in ("ps", "worker", "chief")}
  hosts = {job: there for job, there in hosts.items() if there}
  if FLAGS.target:
    if hosts:
      raise app.UsageError("--target and --%s_hosts both name a cluster: leave one out" % (
        next(iter(hosts))))
    return FLAGS.target
  found = tasks.find_cluster(is_task=False)
  if found is None:
    raise app.UsageError("no cluster is described: give --ps_hosts and --worker_hosts, set "
                         "TF_CONFIG in the environment, or give --target for a ps of tf1ps")
  if (found.tf_config or "").strip():
    return resolve_cluster(
      hosts.get("ps"), hosts.get("worker"), hosts.get("chief"), **tasks.described(found))
  job_name = next(iter(hosts))  # a `Cluster` belongs to a task, and any will do
  if job_name == "ps" and len(hosts) == 1:  # ps alone make no job, but can be cleared
    return from_cluster_spec(hosts, job_name, 0)
  return resolve_cluster(
    hosts.get("ps"), hosts.get("worker"), hosts.get("chief"), job_name=job_name, task_index=0)


def main() -> None:
  """The console script."""
  app.leave(run(sys.argv[1:]))
