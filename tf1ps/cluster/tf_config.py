"""The view of a job from TF_CONFIG, the JSON text that schedulers put into the environment.

  {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...], "evaluator": [...]},
   "task": {"type": "worker", "index": 0}}

Both dialects are read: with a chief job ("master" is its old name and becomes "chief"), and without
one, where worker 0 is the chief. The evaluator may stand inside `cluster` or only be a task's type.
An index may be a number or the text of one.
"""

from __future__ import annotations

import json
from typing import Optional, Sequence, Union

from tf1ps.cluster import checks
from tf1ps.cluster.address import ClusterError
from tf1ps.cluster.from_spec import index_tasks, parse_index
from tf1ps.cluster.spec import parse_job_workers
from tf1ps.cluster.view import EVALUATOR, Cluster

_JOBS = ("chief", "master", "worker", "ps", EVALUATOR)
_EXAMPLE = ('{"cluster": {"ps": ["host:port"], "worker": ["host:port"]}, '
            '"task": {"type": "worker", "index": 0}}')


def from_tf_config(text: str, source: str = "TF_CONFIG",
                   job_workers: Union[None, str, Sequence[int]] = None) -> Cluster:
  """Makes the view of a job that was described with TF_CONFIG.

  Args:
    text: The JSON text.
    source: What the text is called in errors.
    job_workers: The workers that belong to this job, as `parse_job_workers` takes them; None: all.

  Returns:
    A checked `Cluster`, in which the chief's job is called "chief".

  Raises:
    ClusterError: If the text is not of the form above, and for everything that `check` refuses.
  """
  config = _parse(text, source)
  jobs = _jobs(_object(config, "cluster", source), source)
  task = _object(config, "task", source)
  job_name, task_index = _job_name(task, source), _task_index(task, source)
  evaluators = jobs.pop(EVALUATOR, {})
  chief = "master" if "master" in jobs else "chief"
  if job_name in ("master", "chief"):
    job_name = chief
  # Checked under the names that the user wrote, which the errors repeat.
  cluster = Cluster(jobs, job_name, task_index, evaluators, parse_job_workers(job_workers), source)
  checks.check_cluster(cluster)
  return cluster._replace(
      jobs={"chief" if job == "master" else job: tasks for job, tasks in jobs.items()},
      job_name="chief" if job_name == "master" else job_name)


def _parse(text, source):
  """Returns the object that the text holds."""
  try:
    config = json.loads(text)
  except json.JSONDecodeError as error:
    near = text[max(0, error.pos - 20):error.pos + 20]
    raise ClusterError(f"{source} is not JSON: {error.msg} at line {error.lineno}, column "
                       f"{error.colno}, near {near!r}: write {_EXAMPLE}") from error
  if not isinstance(config, dict):
    raise ClusterError(f"{source} is no object, but {json.dumps(config)}: write {_EXAMPLE}")
  return config


def _object(config, key, source):
  """Returns an entry that must be an object."""
  if key not in config:
    raise ClusterError(f'{source} has no "{key}", only {_names(config)}: write {_EXAMPLE}')
  if not isinstance(config[key], dict):
    raise ClusterError(f'{source} {key} is no object, but {json.dumps(config[key])}: '
                       f"write {_EXAMPLE}")
  return config[key]


def _names(entries):
  return ", ".join(f'"{key}"' for key in sorted(entries)) or "an empty object"


def _jobs(cluster, source):
  """Returns job -> index -> address."""
  for job in cluster:
    if job not in _JOBS:
      raise ClusterError(f'{source} cluster: there is no job "{job}": '
                         f"{checks.nearest_name(job, _JOBS)}")
  if "master" in cluster and "chief" in cluster:
    raise ClusterError(f'{source} cluster has both "master" and "chief", which are names of the '
                       'same job: keep "chief"')
  jobs = {job: index_tasks(tasks, f"{source} cluster.{job}") for job, tasks in cluster.items()}
  if jobs.get(EVALUATOR) == {}:
    del jobs[EVALUATOR]  # nobody dials it: as good as not named
  return jobs


def _job_name(task, source):
  """Returns the job of this task, as it was written."""
  if "type" not in task:
    raise ClusterError(f'{source} task has no "type": give this task\'s job, as in '
                       '{"type": "worker", "index": 0}')
  job_name = task["type"]
  if job_name not in _JOBS:
    raise ClusterError(f"{source} task.type: there is no job {json.dumps(job_name)}: "
                       f"{checks.nearest_name(str(job_name), _JOBS)}")
  return job_name


def _task_index(task, source) -> Optional[int]:
  """Returns the index of this task; None where it was left away, which the check refuses."""
  if "index" not in task:
    return None
  index = parse_index(task["index"])
  if index is None:
    raise ClusterError(f"{source} task.index: {json.dumps(task['index'])} is no whole number: give "
                       "this task's index in its job, from 0")
  return index
