"""tf1ps-task: runs the task of a job that its scheduler's environment names.

It asks the resolver of --cluster_resolver which task this is, and then does the work of tf1ps-ps,
tf1ps-worker or tf1ps-evaluator. So all tasks of a job have the same command line.
"""

from __future__ import annotations

import logging
import os

from absl import flags

from tf1ps.cli import app, command_line, errors, evaluator, program_flags, ps, tasks, worker
from tf1ps.cli import flags as flags_lib
from tf1ps.cluster import AUTO_RESOLVER, EVALUATOR, resolve_cluster
from tf1ps.compat import Error

_SUMMARY = (
  "the task of a job that the environment of its scheduler names: a ps, a worker or an evaluator. "
  "All tasks have the same command line, and each ignores the flags of the others.")
_PROGRAMS = {"ps": ps, EVALUATOR: evaluator}  # every other job is a worker's
_log = logging.getLogger("tf1ps")


def run(argv) -> int:
  """Runs a task; returns the exit code of its program."""
  argv = list(argv)
  if app.asks_for_text(argv):
    return app.run("task", _SUMMARY, argv, lambda program: 0)
  app.prepare_output("task", argv)
  try:
    argv = command_line.name_program(argv, "task")
    job, more = _find_task(argv)
  except Error as error:
    return app.refuse("task", error)
  program = _PROGRAMS.get(job, worker)
  return program.run(command_line.without_others(argv, program.__name__.rsplit(".", 1)[-1]) + more)


def _find_task(argv):
  """Returns the job of this task, and further flags for its program."""
  given = flags.FlagValues()  # absl's own object has the flags of the task's program
  flags_lib.define("task", given)
  try:
    given(["tf1ps-task"] + argv, known_only=True)
  except flags.Error as error:
    raise errors.UsageError("%s (see tf1ps-task --help)" % str(error).strip()) from error
  if given["program"].value:
    program_flags.set_defaults(program_flags.without_given(
      program_flags.read(given["program"].value), lambda name: bool(given[name].present)), given)
  environment = tasks.find_cluster(given)
  if environment is None:
    raise errors.UsageError(
      "no cluster was found: --cluster_resolver=auto looks for --ps_hosts and --worker_hosts, for "
      "TF_CONFIG, and for the variables of a JobSet (JOBSET_NAME), of an Indexed Job "
      "(JOB_COMPLETION_INDEX) and of a step of Slurm (SLURM_PROCID)")
  more = []
  if given["cluster_resolver"].value == AUTO_RESOLVER:
    _log.info("%s", environment)
    if environment.is_scheduler:
      more.append("--cluster_resolver=" + environment.resolver)
  if environment.is_scheduler and given["replication"].value == tasks.ALL_REDUCE and (
      given["num_ps"].value is None and "NUM_PS" not in os.environ):
    more.append("--num_ps=0")  # an evaluator does not know the replication
  cluster = resolve_cluster(
    given["ps_hosts"].value, given["worker_hosts"].value, given["job_name"].value,
    given["task_index"].value, **tasks.described(environment))
  return cluster.job_name, more
