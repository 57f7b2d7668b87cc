"""The description of a job from whatever this process was given: flags, TF_CONFIG, or both.

  1. TF_CONFIG alone, or flags alone: that is the job.
  2. Both: TF_CONFIG is the job, and each flag that was given must say the same.
  3. Neither: refused, with the two ways to describe a job.

A program may imply its job (tf1ps-ps runs a ps), so that --job_name can be left away; an index can,
too, where the job has one task.
"""

from __future__ import annotations

from typing import Optional, Sequence, Union

from tf1ps.cluster import checks, spec
from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.tf_config import from_tf_config
from tf1ps.cluster.view import EVALUATOR, Cluster

_PROGRAMS = {"ps": "tf1ps-ps", "worker": "tf1ps-worker", "chief": "tf1ps-worker",
             EVALUATOR: "tf1ps-evaluator"}


def resolve_cluster(ps_hosts: spec.Hosts = None, worker_hosts: spec.Hosts = None,
            chief_hosts: spec.Hosts = None, evaluator_hosts: spec.Hosts = None,
            job_name: Optional[str] = None, task_index: Optional[int] = None,
            job_workers: Union[None, str, Sequence[int]] = None, tf_config: Optional[str] = None,
            needs_ps: Union[bool, str] = False, implied_job: Optional[str] = None) -> Cluster:
  """Makes the one view of the job from all that describes it.

  Args:
    ps_hosts: As for `spec.from_flags`, like the next six; None and "" mean that a flag is absent.
    worker_hosts: See there.
    chief_hosts: See there.
    evaluator_hosts: See there.
    job_name: See there. None: what `implied_job` says.
    task_index: See there. None: 0 where the job has one task, else refused.
    job_workers: See there. TF_CONFIG has no word for it.
    tf_config: The text of TF_CONFIG; None and "" mean that it is absent.
    needs_ps: Whether there must be a ps; a text names what needs it, as "between_graph".
    implied_job: The job that the program runs: "ps", "worker" (which the chief is, too) or
      "evaluator". None: any.

  Returns:
    A checked `Cluster`; its `source` is "flags", "TF_CONFIG" or "flags and TF_CONFIG".

  Raises:
    ClusterError: If there is no description, if two contradict each other or the program, and for
      everything that `checks.check_cluster` refuses.
  """
  hosts = {"ps": ps_hosts, "worker": worker_hosts, "chief": chief_hosts, EVALUATOR: evaluator_hosts}
  hosts = {job: spec.split_hosts(given) for job, given in hosts.items() if spec.split_hosts(given)}
  job_name = "chief" if job_name == "master" else job_name or None
  if tf_config and tf_config.strip():
    cluster = from_tf_config(tf_config, job_workers=job_workers)
    _check_agreement(cluster, hosts, job_name, task_index)
    _check_program(cluster.job_name, implied_job, "TF_CONFIG task.type")
  elif hosts:
    _check_program(job_name, implied_job, "--job_name")
    job_name = job_name or _implied_job_name(hosts, implied_job)
    if task_index is None:
      task_index = _implied_index(hosts, job_name)
    cluster = spec.from_flags(hosts.get("ps"), hosts.get("worker"), hosts.get("chief"),
                              hosts.get(EVALUATOR), job_name, task_index, job_workers)
  else:
    raise ClusterError(
        "no cluster is described: give --ps_hosts, --worker_hosts, --job_name and --task_index, or "
        'set TF_CONFIG in the environment to {"cluster": {"ps": ["host:port"], "worker": '
        '["host:port"]}, "task": {"type": "worker", "index": 0}}')
  checks.check_cluster(cluster, needs_ps)
  if cluster.source != checks.FLAGS and (hosts or job_name or task_index is not None):
    cluster = cluster._replace(source=f"{checks.FLAGS} and {cluster.source}")
  return cluster


def _check_agreement(cluster, hosts, job_name, task_index):
  """Refuses a flag that says something else than TF_CONFIG."""
  for job, addresses in hosts.items():
    _check_same(f"--{job}_hosts", ",".join(map(str, addresses)),
                f"cluster.{job}", _addresses(cluster.tasks(job)))
  if job_name is not None:
    _check_same("--job_name", job_name, "task.type", cluster.job_name)
  if task_index is not None:
    _check_same("--task_index", task_index, "task.index", cluster.task_index)


def _check_same(flag, value, key, other):
  """Refuses a flag whose value is not that of an entry of TF_CONFIG."""
  if value != other:
    theirs = f"TF_CONFIG has no {key}" if other == "" else f'TF_CONFIG {key} is "{other}"'
    raise ClusterError(f'{flag} is "{value}", but {theirs}: make them the same, or leave one away')


def _addresses(tasks):
  """Returns addresses as a flag has them; indices with gaps, which no flag has, are told, too."""
  if [task.index for task in tasks] == list(range(len(tasks))):
    return ",".join(task.address for task in tasks)
  return ",".join(f"{task.index}={task.address}" for task in tasks)


def _check_program(job_name, implied_job, where):
  """Refuses a job that another program runs; unknown jobs are refused later, with the nearest."""
  program = _PROGRAMS.get(job_name)
  if implied_job is not None and program not in (None, _PROGRAMS[implied_job]):
    raise ClusterError(f'{where} is "{job_name}", which {_PROGRAMS[implied_job]} does not run: '
                       f"start {program}")


def _implied_job_name(hosts, implied_job):
  """Returns the job of a task that was not told one."""
  if implied_job == "worker" and "worker" not in hosts and "chief" in hosts:
    return "chief"
  return implied_job


def _implied_index(hosts, job_name):
  """Returns the index of a task that was not told one; None where only the user can know."""
  return 0 if len(hosts.get(job_name, [])) == 1 or job_name == EVALUATOR else None
