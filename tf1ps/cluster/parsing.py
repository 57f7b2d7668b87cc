"""Makes a `Cluster` from the descriptions that users write.

  description                        made into a `Cluster` by
  --ps_hosts, TF_CONFIG, or both     `resolve_cluster`
  a scheduler's environment          resolvers.py, which makes a TF_CONFIG; then `resolve_cluster`
  a ClusterSpec, ServerDef or dict   `from_cluster_spec`, for `tf1ps.Server`

TF_CONFIG is the JSON text that schedulers put into the environment:

  {"cluster": {"chief": ["host:port"], "worker": [...], "ps": [...], "evaluator": [...]},
   "task": {"type": "worker", "index": 0}}

Both dialects are read. In the first dialect, the job "chief" is the chief ("master" is its old name
and becomes "chief"). In the second dialect, worker 0 is the chief. The evaluator may be in
`cluster`, or may appear only as a task's type. An evaluator talks to no task, so its TF_CONFIG may
name no other task, or lack `cluster`. An index is a number or the text of a number.
"""

from __future__ import annotations

import dataclasses
import json
import operator
import re
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Set, Tuple, Union

from tf1ps.cluster.description import (
  CLUSTER_SPEC,
  EVALUATOR,
  FLAGS,
  Cluster,
  ClusterError,
  Origin,
  nearest_name,
)

if TYPE_CHECKING:  # a command line answers before TensorFlow is there
  import tensorflow.compat.v1 as tf

Hosts = Union[None, str, Sequence[str]]
Workers = Union[None, str, Sequence[int]]

_PROGRAMS = {"ps": "tf1ps-ps", "worker": "tf1ps-worker", "chief": "tf1ps-worker",
             EVALUATOR: "tf1ps-evaluator"}
_TF_CONFIG = "TF_CONFIG"  # as a `Cluster.source`
_JOBS = ("chief", "master", "worker", "ps", EVALUATOR)
_EXAMPLE = ('{"cluster": {"ps": ["host:port"], "worker": ["host:port"]}, '
            '"task": {"type": "worker", "index": 0}}')


def resolve_cluster(
  ps_hosts: Hosts = None, worker_hosts: Hosts = None, job_name: Optional[str] = None,
  task_index: Optional[int] = None, job_workers: Workers = None,
  tf_config: Optional[str] = None, needs_ps: Union[bool, str] = False,
  implied_job: Optional[str] = None, source: str = _TF_CONFIG,
) -> Cluster:
  """Makes the cluster from flags, from TF_CONFIG, or from TF_CONFIG and flags that agree with it.

  Args:
    ps_hosts: the addresses of the ps, a text with commas or a list; None, "" and [] mean that the
      flag is absent, here and in the next argument.
    worker_hosts: the addresses of the workers; worker 0 is the chief.
    job_name: this task's job: "ps", "worker", "chief" ("master" is its old name) or "evaluator".
      None or "": the value of `implied_job`.
    task_index: this task's index in its job; None: 0, if the job has no other task.
    job_workers: the workers that belong to this job, as in `parse_job_workers`; None: all.
      TF_CONFIG has no key for it.
    tf_config: the text of TF_CONFIG; None and "" mean that it is absent.
    needs_ps: whether the cluster must have a ps; a text gives the reason, such as "between_graph".
    implied_job: the job that the program runs: "ps", "worker" (the chief runs it, too) or
      "evaluator". None: any.
    source: the origin of `tf_config`, for errors, such as "Slurm".

  Returns:
    A `Cluster`; its `source` is "flags", `source` or "flags and TF_CONFIG".

  Raises:
    ClusterError: the description is missing, contradicts itself or the program, or cannot work.
  """
  given = {"ps": ps_hosts, "worker": worker_hosts}
  hosts = {job: split_hosts(value) for job, value in given.items() if split_hosts(value)}
  job_name = "chief" if job_name == "master" else job_name or None
  if tf_config and tf_config.strip():
    cluster = from_tf_config(tf_config, job_workers, source)
    _check_agreement(cluster, hosts, job_name, task_index)
    _check_program(cluster.job_name, implied_job, f"{source} task.type",
                   "" if source == _TF_CONFIG else ", or tf1ps-task for every task")
  elif hosts:
    _check_program(job_name, implied_job, "--job_name")
    cluster = _from_flags(hosts, job_name or implied_job, task_index, job_workers)
  else:
    raise ClusterError(
      "no cluster is described: give --ps_hosts, --worker_hosts, --job_name and --task_index, or "
      f"set TF_CONFIG in the environment to {_EXAMPLE}")
  if needs_ps and not cluster.ps:
    user = needs_ps if isinstance(needs_ps, str) else "this replication"
    raise ClusterError(f"{user} needs at least one ps: give {Origin(cluster.source).job('ps')}")
  if cluster.source == source and (hosts or job_name or task_index is not None):
    cluster = dataclasses.replace(cluster, source=f"{FLAGS} and {source}")
  return cluster


def _from_flags(hosts, job_name, task_index, job_workers):
  if job_name == "chief":
    raise ClusterError('--job_name is "chief", but worker 0 is the chief of a cluster that flags '
                       "describe: give --job_name=worker --task_index=0, or set TF_CONFIG")
  jobs = {job: dict(enumerate(addresses)) for job, addresses in hosts.items()}
  if task_index is None and (len(jobs.get(job_name, {})) == 1 or job_name == EVALUATOR):
    task_index = 0
  return Cluster(jobs, job_name, task_index, job_workers=parse_job_workers(job_workers),
                 source=FLAGS)


def _check_agreement(cluster, hosts, job_name, task_index):
  """Refuses a flag that contradicts the description in the environment."""
  source = cluster.source
  for job, addresses in hosts.items():
    _check_same(f"--{job}_hosts", ",".join(map(str, addresses)),
                source, f"cluster.{job}", _addresses(cluster.tasks(job)))
  if job_name is not None:
    _check_same("--job_name", job_name, source, "task.type", cluster.job_name)
  if task_index is not None:
    _check_same("--task_index", task_index, source, "task.index", cluster.task_index)


def _check_same(flag, value, source, key, other):
  if value != other:
    theirs = f"{source} has no {key}" if other == "" else f'{source} {key} is "{other}"'
    raise ClusterError(f'{flag} is "{value}", but {theirs}: make them the same, or leave one out')


def _addresses(tasks):
  """Returns addresses as in a flag; if the indices have gaps, in a form with indices."""
  if [task.index for task in tasks] == list(range(len(tasks))):
    return ",".join(task.address for task in tasks)
  return ",".join(f"{task.index}={task.address}" for task in tasks)


def _check_program(job_name, implied_job, where, also=""):
  """Refuses a job that another program runs. `Cluster` refuses unknown jobs."""
  program = _PROGRAMS.get(job_name)
  if implied_job is not None and program not in (None, _PROGRAMS[implied_job]):
    raise ClusterError(f'{where} is "{job_name}", which {_PROGRAMS[implied_job]} does not run: '
                       f"start {program}{also}")


def split_hosts(hosts: Hosts) -> List[str]:
  """Returns the addresses of a flag, without blanks around commas; [] for an absent flag."""
  if hosts is None or isinstance(hosts, str):
    hosts = hosts.split(",") if hosts and hosts.strip() else []
  return [host.strip() if isinstance(host, str) else host for host in hosts]


def parse_job_workers(text: Workers) -> Optional[Tuple[int, ...]]:
  """Parses the indices of the workers that belong to this job; returns them ascending.

  Args:
    text: indices and ranges, both ends included, such as "0,2-4"; or the indices as numbers. None
      and "" mean all workers, for which the result is None.

  Raises:
    ClusterError: a part is neither an index nor a range.
  """
  if text is None or text == "":
    return None
  if not isinstance(text, str):
    return tuple(sorted(set(text)))
  indices: Set[int] = set()
  for part in text.split(","):
    # Five digits allow more workers than there are ports; a typing error must not fill the memory.
    match = re.fullmatch(r"\s*([0-9]{1,5})(?:\s*-\s*([0-9]{1,5}))?\s*", part)
    if not match:
      raise ClusterError(f'--job_workers: "{part}" of "{text}" is neither an index nor a range: '
                         'write "2-3" or "0,2-4"')
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    if first > last:
      raise ClusterError(f'--job_workers: the range "{part.strip()}" goes down: write '
                         f'"{last}-{first}"')
    indices.update(range(first, last + 1))
  return tuple(sorted(indices))


def from_tf_config(text: str, job_workers: Workers = None, source: str = _TF_CONFIG) -> Cluster:
  """Makes the cluster from the JSON text of TF_CONFIG; its chief's job is called "chief".

  `job_workers` and `source` are as for `resolve_cluster`.

  Raises:
    ClusterError: the text has another form, or the cluster cannot work.
  """
  config = _parse(text)
  jobs = _jobs(_cluster_object(config))
  task = _object(config, "task")
  job_name = _job_name(task)
  task_index: Any = _task_index(task)  # None is refused with the cluster
  evaluators = jobs.pop(EVALUATOR, {})
  if job_name in ("master", "chief"):
    job_name = "master" if "master" in jobs else "chief"
  # The cluster is checked under the names that the user wrote, because errors repeat these names.
  cluster = Cluster(jobs, job_name, task_index, evaluators, parse_job_workers(job_workers), source)
  if "master" not in jobs:
    return cluster
  return dataclasses.replace(
    cluster, jobs={"chief" if job == "master" else job: tasks for job, tasks in jobs.items()},
    job_name="chief" if job_name == "master" else job_name)


def _parse(text):
  try:
    config = json.loads(text)
  except json.JSONDecodeError as error:
    near = text[max(0, error.pos - 20):error.pos + 20]
    raise ClusterError(f"TF_CONFIG is not JSON: {error.msg} at line {error.lineno}, column "
                       f"{error.colno}, near {near!r}: write {_EXAMPLE}") from error
  except RecursionError as error:
    raise ClusterError(f"TF_CONFIG is nested too deeply to be read: write {_EXAMPLE}") from error
  except ValueError as error:  # a number of thousands of digits
    raise ClusterError(f"TF_CONFIG cannot be read: {error}: write {_EXAMPLE}") from error
  if not isinstance(config, dict):
    raise ClusterError(f"TF_CONFIG is not an object, but {_shown(config)}: write {_EXAMPLE}")
  return config


def _shown(value) -> str:
  """The JSON text of a value, for errors; a long text is cut."""
  try:
    text = json.dumps(value)
  except RecursionError:
    return "a value of very many levels"
  return text if len(text) <= 200 else text[:200] + "..."


def _object(config, key):
  if key not in config:
    raise ClusterError(f'TF_CONFIG has no "{key}", only {_names(config)}: write {_EXAMPLE}')
  if not isinstance(config[key], dict):
    raise ClusterError(f'TF_CONFIG {key} is not an object, but {_shown(config[key])}: '
                       f"write {_EXAMPLE}")
  return config[key]


def _cluster_object(config):
  """Returns the entry "cluster", which an evaluator may omit."""
  task = config.get("task")
  if "cluster" not in config and isinstance(task, dict) and task.get("type") == EVALUATOR:
    return {}
  return _object(config, "cluster")


def _names(entries):
  return ", ".join(f'"{key}"' for key in sorted(entries)) or "an empty object"


def _jobs(cluster):
  """Returns {job: {index: address}}."""
  for job in cluster:
    if job not in _JOBS:
      raise ClusterError(f'TF_CONFIG cluster: "{job}" is not a job: {nearest_name(job, _JOBS)}')
  if "master" in cluster and "chief" in cluster:
    raise ClusterError('TF_CONFIG cluster has both "master" and "chief", which are names of the '
                       'same job: keep "chief"')
  jobs = {job: index_tasks(tasks, f"TF_CONFIG cluster.{job}") for job, tasks in cluster.items()}
  if jobs.get(EVALUATOR) == {}:
    del jobs[EVALUATOR]  # no task connects to an evaluator, so an empty list means an absent job
  return jobs


def _job_name(task):
  """Returns the job of this task, as it was written."""
  if "type" not in task:
    raise ClusterError('TF_CONFIG task has no "type": give this task\'s job, as in '
                       '{"type": "worker", "index": 0}')
  job_name = task["type"]
  if job_name not in _JOBS:
    raise ClusterError(f"TF_CONFIG task.type: {_shown(job_name)} is not a job: "
                       f"{nearest_name(str(job_name), _JOBS)}")
  return job_name


def _task_index(task) -> Optional[int]:
  """Returns the index of this task; None if it is absent, which `Cluster` refuses."""
  if "index" not in task:
    return None
  index = parse_index(task["index"])
  if index is None:
    raise ClusterError(f"TF_CONFIG task.index: {_shown(task['index'])} is not an integer: give "
                       "this task's index in its job, from 0")
  return index


def from_cluster_spec(
  server_or_cluster_def: Union[
    tf.train.ServerDef, tf.train.ClusterDef, tf.train.ClusterSpec, dict],
  job_name: Optional[str] = None, task_index: Optional[int] = None,
  job_workers: Optional[Sequence[int]] = None,
) -> Cluster:
  """Makes the cluster from a description in a form that `tf.train.Server` accepts.

  The jobs keep their names, and a sparse job keeps the gaps between its indices.

  Args:
    server_or_cluster_def: a `tf.train.ServerDef`, `ClusterDef` or `ClusterSpec`, or a dict from a
      job to a list of addresses or to a dict from indices to addresses.
    job_name: this task's job; None: the job of a ServerDef, else the only job.
    task_index: this task's index; None: the index of a ServerDef, else the job's only task.
    job_workers: the indices of the workers that belong to this job; None: all.

  Raises:
    ClusterError: the description is of another type, lacks this task's job or index, or cannot
      work.
  """
  import tensorflow.compat.v1 as tf  # late: a command line answers before TensorFlow is there
  given: Any = server_or_cluster_def
  index: Any = task_index  # a Cluster refuses a wrong index
  if isinstance(given, tf.train.ServerDef):
    job_name = given.job_name if job_name is None else job_name
    index = given.task_index if index is None else index
    given = given.cluster
  if isinstance(given, tf.train.ClusterSpec):
    given = given.as_cluster_def()
  if isinstance(given, tf.train.ClusterDef):
    given = {job.name: dict(job.tasks) for job in given.job}
  if not isinstance(given, dict):
    raise ClusterError(f"{given!r} does not describe a cluster: give a ServerDef, ClusterDef, "
                       'ClusterSpec or a dict such as {"ps": ["host:2222"], "worker": '
                       '["host:2223"]}')
  jobs = {_text(job): index_tasks(tasks, f"{CLUSTER_SPEC} {_text(job)}")
          for job, tasks in given.items()}
  if job_name is None and len(jobs) == 1:
    job_name = next(iter(jobs))
  job_name = _text(job_name)
  if index is None and len(jobs.get(job_name, {})) == 1:
    index = next(iter(jobs[job_name]))
  if hasattr(index, "__index__") and not isinstance(index, bool):
    index = operator.index(index)  # accepts numpy's integers, too
  return Cluster(jobs, job_name, index, job_workers=parse_job_workers(job_workers))


def index_tasks(tasks, source: str) -> Dict[int, str]:
  """Returns the addresses of a job by their indices.

  Args:
    tasks: a list of addresses, or a dict from indices (numbers, or text as in JSON) to addresses.
    source: the place where the tasks were written, for the error.

  Raises:
    ClusterError: `tasks` is of another type, or an index is not a number or is given twice.
  """
  if isinstance(tasks, (list, tuple)):
    return {index: _text(address) for index, address in enumerate(tasks)}
  if not isinstance(tasks, dict):
    raise ClusterError(f'{source}: {tasks!r} is not a list of addresses: write ["host:port", ...]')
  by_index = {}
  for key, address in tasks.items():
    index = parse_index(key)
    if index is None:
      raise ClusterError(f"{source}: the index {key!r} is not a number: count from 0")
    if index in by_index:
      raise ClusterError(f"{source}: the index {index} is given twice: give each task its own")
    by_index[index] = _text(address)
  return by_index


def parse_index(value) -> Optional[int]:
  """Returns an index that is a number or the text of a number; None for anything else."""
  if isinstance(value, str) and re.fullmatch("-?[0-9]{1,18}", value):
    return int(value)
  return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value):
  """Returns bytes as text; TensorFlow accepts both for names and addresses."""
  return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
