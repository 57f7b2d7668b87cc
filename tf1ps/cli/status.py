"""tf1ps-status: asks a ps for the status of a running job, and prints it.

It is not a task of the cluster: it sends no heartbeat, and creates nothing on a ps. It finds the
job by its flags, by the environment of a task, by the checkpoint directory, or among the jobs that
tf1ps-local runs on this machine. A ps on this machine answers immediately
(monitoring/status_socket); to ask a ps on another machine, this process imports TensorFlow.
"""

from __future__ import annotations

import os
from typing import List, Sequence

from absl import flags

from tf1ps.cli import app, running_jobs, tasks
from tf1ps.compat import near_path
from tf1ps.monitoring import ask_here, format_status, status_as_json
from tf1ps.state import RUN_RUNNING
from tf1ps.training import LOG_JSON

FLAGS = flags.FLAGS
_SUMMARY = (
  "prints the status of a running job: its tasks, the load of its ps, its queues, and its last "
  "checkpoint. Without an address it asks the job that tf1ps-local runs on this machine; `tf1ps-"
  "status DIR` asks the job that saves into this directory. Exit code 1: no ps answered.")


def run(argv) -> int:
  """Prints the status; returns the exit code."""
  return app.run("status", _SUMMARY, list(argv), _show, needs_program=False, takes_names=True)


def find_addresses(names: List[str], program_name: str) -> List[str]:
  """Finds the addresses of the tasks to ask.

  Args:
    names: the arguments that are not flags: nothing, or a checkpoint directory.
    program_name: the name of this program, such as "status".

  Raises:
    UsageError: no job runs, or several jobs run; the text says what to call.
    ClusterError: a part of --ps_hosts is not an address.
  """
  from tf1ps.cluster import parse_address, resolve_cluster, split_hosts

  given = split_hosts(FLAGS.ps_hosts)
  for address in given:
    parse_address(address, "--ps_hosts")
  if len(names) > 1 or names and given:
    raise app.UsageError(
      "%r is one argument too many: give either --ps_hosts or one checkpoint directory" % names[-1])
  if given:
    return given
  environment = None if names else tasks.find_cluster(is_task=False)
  ps = environment and resolve_cluster(**tasks.described(environment)).ps
  if ps:
    return [task.address for task in ps]
  running = running_jobs.find_jobs()
  if names:
    running = [job for job in running if job.checkpoint_dir == running_jobs.locate(names[0])]
    if not running:
      return [_address_in(names[0])]
  if not running:
    raise app.UsageError(
      "tf1ps-local runs no job of yours on this machine. For a job elsewhere give --ps_hosts="
      "HOST:PORT, the address of any of its ps, or its checkpoint directory")
  if len(running) > 1 or running[0].tls_dir and FLAGS.tls_dir is None:
    raise app.UsageError("%s. Call\n%s" % (
      "%d jobs run here" % len(running) if len(running) > 1 else "the job has encrypted links",
      "\n".join("  tf1ps %s %s" % (program_name, job) for job in running)))
  return running[0].addresses


def _address_in(checkpoint_dir: str) -> str:
  """Returns the address that the chief of the running job has written into its directory."""
  run = running_jobs.read_run(checkpoint_dir)
  if run is None:
    near = "" if os.path.isdir(checkpoint_dir) else near_path(checkpoint_dir)
    raise app.UsageError(
      "%s has no run: no job of tf1ps has saved there%s" % (checkpoint_dir, near))
  if run.was_stopped:
    raise app.UsageError(
      "the run in %s was stopped at global step %d (%s): the same command goes on from its last "
      "checkpoint" % (checkpoint_dir, run.global_step, run.reason))
  if run.state != RUN_RUNNING:
    raise app.UsageError("the run in %s has %s at global step %d%s" % (
      checkpoint_dir, run.state, run.global_step, run.reason and ": " + run.reason))
  if not run.address:
    raise app.UsageError("the run in %s does not say where its ps are: give --ps_hosts" % (
      checkpoint_dir))
  return run.address


def ask(addresses: List[str], names: Sequence[str] = ()):
  """Asks a task at these addresses; returns the `Status`.

  Raises UsageError if no task answers and the job of the directory in `names` has ended meanwhile.
  """
  status = ask_here(addresses)
  if status is not None:
    return status
  app.prepare_tensorflow()
  from tf1ps.monitoring import StatusError, ask_status

  try:
    return ask_status(addresses, FLAGS.start_timeout)
  except StatusError:
    if names:
      _address_in(names[0])
    raise


def _show(names) -> int:
  status = ask(find_addresses(names, "status"), names)
  print(status_as_json(status) if FLAGS.log_format == LOG_JSON else format_status(status))
  return 0
