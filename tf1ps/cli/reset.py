"""tf1ps-reset: clears containers on each task of a cluster, and ends no session.

It is not a task of the cluster. It first checks all names. Then it prints a line for each task: the
containers that it cleared and the queues that it closed before, or why it cleared nothing.
"""

from __future__ import annotations

import time

from absl import flags

from tf1ps.cli import app, tasks

FLAGS = flags.FLAGS
_SUMMARY = (
  "clears containers on each task of a cluster, and ends no session. Usage: tf1ps-reset NAME... "
  'and flags, where NAME is a job\'s --container, or "default" for the default container. Calls '
  "that wait at queues of tf1ps in them end first. For a queue of another program, name it, as in "
  "queue:NAME: it is closed first, because a ps of TensorFlow 2 dies if a queue on which a task is "
  "blocked is cleared. grpc://HOST:PORT, a ps of tf1ps, knows its cluster, and takes the place of "
  "the addresses. Exit code 1: a task was not cleared.")
_QUEUE = "queue:"


def run(argv) -> int:
  """Clears containers; returns the exit code."""
  return app.run("reset", _SUMMARY, list(argv), _reset, needs_program=False, takes_names=True)


def _reset(arguments) -> int:
  queues = [text[len(_QUEUE):] for text in arguments if text.startswith(_QUEUE)]
  others = [text for text in arguments if not text.startswith(_QUEUE)]
  targets = [text for text in others if "://" in text]
  names = [text for text in others if text not in targets]
  if not names:
    raise app.UsageError('the names of the containers are missing: give them, or "default"')
  app.prepare_tensorflow()
  from tf1ps.state import ResetError, reset_containers

  began = time.monotonic()
  try:
    results = reset_containers(_target(targets), names, queues=queues)
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


def _target(given):
  """Returns the cluster from flags, TF_CONFIG or a scheduler, or else the given address of a ps."""
  from tf1ps.cluster import from_cluster_spec, resolve_cluster, split_hosts

  hosts = {job: split_hosts(FLAGS[job + "_hosts"].value) for job in ("ps", "worker")}
  hosts = {job: addresses for job, addresses in hosts.items() if addresses}
  others = given[1:] + ["--%s_hosts" % job for job in hosts]
  if given and others:
    raise app.UsageError("%s and %s both name a cluster: leave one out" % (given[0], others[0]))
  if given:
    return given[0]
  environment = tasks.find_cluster(is_task=False)
  if environment is None:
    raise app.UsageError("no cluster is described: give --ps_hosts and --worker_hosts, set "
                         "TF_CONFIG in the environment, or give grpc://HOST:PORT of a ps of tf1ps")
  if (environment.tf_config or "").strip():
    return resolve_cluster(hosts.get("ps"), hosts.get("worker"), **tasks.described(environment))
  job_name = next(iter(hosts))  # a `Cluster` needs a task; here any task will do
  if job_name == "ps" and len(hosts) == 1:  # ps without workers make no job
    return from_cluster_spec(hosts, job_name, 0)
  return resolve_cluster(hosts.get("ps"), hosts.get("worker"), job_name, task_index=0)
