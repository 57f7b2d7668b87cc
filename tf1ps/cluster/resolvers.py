"""Finds the cluster and this task in the environment that a scheduler gives to its tasks.

A resolver returns the text of a TF_CONFIG. So only parsing.py parses and checks a cluster, and a
program that reads TF_CONFIG can be given the text.

  name          environment                       rank or index of this task
  flags         the host flags alone              --job_name and --task_index
  tf_config     TF_CONFIG, such as TFJob's        in TF_CONFIG
  volcano       TF_CONFIG of Volcano's plugin     in TF_CONFIG
  jobset        a JobSet of Kubernetes            JOB_COMPLETION_INDEX in REPLICATED_JOB_NAME
  indexed_job   an Indexed Job of Kubernetes      JOB_COMPLETION_INDEX
  slurm         a step of Slurm (srun)            SLURM_PROCID

Ranks are assigned in this order: ps 0 to N-1; worker 0, which is the chief; the other workers; the
evaluator, if any. This module only reads variables, and sends no request to a scheduler.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from tf1ps.cluster.description import EVALUATOR, ClusterError

AUTO_RESOLVER, FLAGS, TF_CONFIG, SLURM, JOBSET, INDEXED_JOB, VOLCANO = RESOLVERS = (
  "auto", "flags", "tf_config", "slurm", "jobset", "indexed_job", "volcano")
DEFAULT_PORT = 2222

_OF_TF_CONFIG = "TF_CONFIG"
_VOLCANO_MARKS = ("VC_TASK_INDEX", "VK_TASK_INDEX")  # the second name is older
# Names and ranges with a typing error must not fill the memory.
_MOST_NODES = 65536
_ROLES = ("ps", "chief", "worker", EVALUATOR)


class FoundCluster(NamedTuple):
  """The result of a resolver."""

  resolver: str  # a name in RESOLVERS, but not "auto"
  source: str  # the place of the description, for errors: "Slurm"
  variables: Dict[str, str]  # the environment variables that were read, except TF_CONFIG
  tf_config: Optional[str] = None  # the description; None: the flags have the whole description
  ignored: Tuple[str, ...] = ()  # the other resolvers whose environment is also present

  @property
  def is_scheduler(self) -> bool:
    """Whether a scheduler's environment has the description, not the flags or a bare TF_CONFIG."""
    return self.resolver not in (FLAGS, TF_CONFIG)

  def __str__(self):
    """The line that a program prints after a search."""
    signs = ", ".join("%s=%s" % each for each in self.variables.items())
    if self.resolver == FLAGS:
      signs = "the host flags"
    elif not signs or self.resolver == VOLCANO:
      signs = ", ".join(filter(None, [_OF_TF_CONFIG, signs]))
    also = "" if not self.ignored else "; it leaves out %s" % " and ".join(self.ignored)
    return "--cluster_resolver=auto found %s, by %s%s" % (self.resolver, signs, also)


class JobCounts(NamedTuple):
  """The part of a job's description that an environment lacks, from flags."""

  num_ps: Optional[int] = None  # None: the environment's number, else `default_ps`
  evaluator: bool = False  # whether the last rank is an evaluator
  port: int = DEFAULT_PORT  # the first port
  default_ps: int = 1


_NO_COUNTS = JobCounts()


def resolve_environment(name: str, environ: Mapping[str, str], has_hosts: bool = False,
                        counts: JobCounts = _NO_COUNTS,
                        is_task: bool = True) -> Optional[FoundCluster]:
  """Runs a resolver.

  `auto` takes the first description that is present, in this order: host flags, TF_CONFIG, the
  variables of a JobSet, of an Indexed Job, of a step of Slurm.

  Args:
    name: a name in RESOLVERS.
    environ: the environment of this process.
    has_hosts: whether flags give addresses of tasks.
    counts: the flags that complete the environment.
    is_task: whether this process is a task of the job. For other processes `auto` ignores Slurm,
      because under Slurm they have a step of their own. In a pod, every process has the environment
      of the pod's task.

  Returns:
    The cluster of the environment; None if `auto` finds nothing.

  Raises:
    ClusterError: a variable is missing or cannot be right, or there are too few tasks.
  """
  if counts.num_ps is not None and counts.num_ps < 0:
    raise ClusterError("--num_ps is %d: give a number from 0 on" % counts.num_ps)
  there = _there(environ, has_hosts)
  if not is_task and SLURM in there:
    there.remove(SLURM)
  if name == AUTO_RESOLVER and not there:
    return None
  name, *ignored = there if name == AUTO_RESOLVER else [name]
  if name == FLAGS:
    if not has_hosts:
      raise ClusterError("--cluster_resolver=flags: give --ps_hosts, --worker_hosts, --job_name "
                         "and --task_index")
    # The flags and TF_CONFIG must agree, unless the user asks for the flags alone.
    config = environ.get(_OF_TF_CONFIG) if TF_CONFIG in ignored or VOLCANO in ignored else None
    return FoundCluster(FLAGS, _OF_TF_CONFIG, {}, config, tuple(
      other for other in ignored if other not in (TF_CONFIG, VOLCANO)))
  resolved = _RESOLVERS[name](_Environment(name, environ), counts)
  return resolved._replace(ignored=tuple(ignored))


def with_chief(tf_config: str) -> str:
  """Returns a TF_CONFIG whose worker 0 is the task "chief", as TensorFlow's estimators require.

  A TF_CONFIG that already has a chief or a master stays as it is.
  """
  config = json.loads(tf_config)
  cluster, task = config["cluster"], config["task"]
  if "worker" not in cluster or {"chief", "master"} & set(cluster):
    return tf_config
  workers = cluster["worker"]
  jobs = {"chief": workers[:1], "worker": workers[1:]}
  job, index = task["type"], task["index"]
  if job == "worker":
    job, index = ("worker", index - 1) if index else ("chief", 0)
  return make_tf_config(dict(cluster, **jobs), job, index)


def _there(environ, has_hosts) -> List[str]:
  """Returns the resolvers whose environment is present, in the order in which `auto` tries them."""
  has_config = bool(environ.get(_OF_TF_CONFIG, "").strip())
  in_volcano = has_config and any(mark in environ for mark in _VOLCANO_MARKS)
  present = {
    FLAGS: has_hosts, VOLCANO: in_volcano, TF_CONFIG: has_config and not in_volcano,
    JOBSET: "JOBSET_NAME" in environ,
    INDEXED_JOB: "JOB_COMPLETION_INDEX" in environ and "JOBSET_NAME" not in environ,
    SLURM: "SLURM_STEP_NUM_TASKS" in environ or "SLURM_PROCID" in environ}
  return [name for name, is_there in present.items() if is_there]


class _Environment:
  """The environment as a resolver reads it."""

  _HINTS = {
    SLURM: "start every task with srun, which sets it",
    JOBSET: "set it in the manifest of the JobSet",
    INDEXED_JOB: "set it in the manifest of the Job",
    VOLCANO: "add the plugin tensorflow to the Volcano job",
    TF_CONFIG: "set it, or give another --cluster_resolver",
  }

  def __init__(self, resolver: str, environ: Mapping[str, str]):
    self._resolver, self._environ = resolver, environ
    self.read: Dict[str, str] = {}

  def text(self, name: str) -> str:
    """Returns a variable; raises ClusterError if it is missing."""
    value = self._environ.get(name, "").strip()
    if not value:
      raise self.error("%s is missing in the environment: %s" % (name, self._HINTS[self._resolver]))
    self.read[name] = value
    return value

  def number(self, name: str) -> int:
    """Returns a variable that is a number from 0 on; raises ClusterError if it is not."""
    value = self.text(name)
    if not re.fullmatch("[0-9]{1,9}", value):
      raise self.error('%s is "%s", which is not a number from 0 on' % (name, value))
    return int(value)

  def has(self, name: str) -> bool:
    """Whether a variable is set and not blank."""
    return bool(self._environ.get(name, "").strip())

  def num_ps(self, counts: JobCounts, needed: bool) -> int:
    """Returns the number of ps, by NUM_PS or --num_ps, which must agree; raises ClusterError."""
    if not self.has("NUM_PS") and (counts.num_ps is not None or not needed):
      return counts.default_ps if counts.num_ps is None else counts.num_ps
    there = self.number("NUM_PS")
    if counts.num_ps not in (None, there):
      raise self.error("--num_ps is %d, but NUM_PS is %d: make them the same, or leave one out" % (
        counts.num_ps, there))
    return there

  def error(self, text: str) -> ClusterError:
    """Makes an error of this resolver."""
    return ClusterError("--cluster_resolver=%s: %s" % (self._resolver, text))


def _from_tf_config(env: _Environment, counts: JobCounts) -> FoundCluster:
  return FoundCluster(TF_CONFIG, _OF_TF_CONFIG, {}, env.text(_OF_TF_CONFIG))


def _from_volcano(env: _Environment, counts: JobCounts) -> FoundCluster:
  config = env.text(_OF_TF_CONFIG)
  marks = {mark: env.text(mark) for mark in _VOLCANO_MARKS if env.has(mark)}
  return FoundCluster(VOLCANO, _OF_TF_CONFIG, marks, config)


def _from_jobset(env: _Environment, counts: JobCounts) -> FoundCluster:
  """Resolves a JobSet with a Job per role: ps, chief (which is worker 0), worker, evaluator."""
  name, role = env.text("JOBSET_NAME"), env.text("REPLICATED_JOB_NAME")
  if role not in _ROLES:
    raise env.error('REPLICATED_JOB_NAME must be one of %s, got "%s": give the replicated job the '
                    "name of its role" % (", ".join(_ROLES), role))
  if env.has("JOB_INDEX") and env.number("JOB_INDEX"):
    raise env.error("JOB_INDEX is %s, but each role is a single Job with a pod per task: give the "
                    "replicated job %s `replicas: 1`, and completions and parallelism for its "
                    "tasks" % (env.text("JOB_INDEX"), role))
  index = env.number("JOB_COMPLETION_INDEX")
  num_ps, num_workers = env.num_ps(counts, needed=True), env.number("NUM_WORKERS")
  if num_workers < 1:
    raise env.error("NUM_WORKERS is 0, but the chief is a worker, too: count it")

  def address(job, pod):
    return "%s-%s-0-%d.%s:%d" % (name, job, pod, name, counts.port)

  pods = {"ps": [address("ps", pod) for pod in range(num_ps)],
          "worker": [address("chief", 0)] + [
            address("worker", pod) for pod in range(num_workers - 1)]}
  sizes = {"ps": num_ps, "chief": 1, "worker": num_workers - 1, EVALUATOR: 1}
  if index >= sizes[role]:
    raise env.error("JOB_COMPLETION_INDEX is %d, but with %d ps and NUM_WORKERS=%d the replicated "
                    "job %s has completions: %d" % (index, num_ps, num_workers, role, sizes[role]))
  job, index = ("worker", index + (role == "worker")) if role in ("chief", "worker") else (
    role, index)
  return FoundCluster(JOBSET, "JobSet", env.read, make_tf_config(pods, job, index))


def _from_indexed_job(env: _Environment, counts: JobCounts) -> FoundCluster:
  """Resolves a Job whose completion index is the rank; its headless Service has the Job's name."""
  rank, name = env.number("JOB_COMPLETION_INDEX"), env.text("JOB_NAME")
  num_ps, num_tasks = env.num_ps(counts, needed=True), env.number("NUM_TASKS")
  _check_rank(env, "JOB_COMPLETION_INDEX", rank, "NUM_TASKS", num_tasks)
  addresses = ["%s-%d.%s:%d" % (name, index, name, counts.port) for index in range(num_tasks)]
  config = _of_ranks(env, addresses, rank, num_ps, counts.evaluator, "completions and NUM_TASKS")
  return FoundCluster(INDEXED_JOB, "Indexed Job", env.read, config)


def _from_slurm(env: _Environment, counts: JobCounts) -> FoundCluster:
  """Resolves a Slurm step by the step's variables: the job's variables include unused nodes."""
  num_tasks = env.number("SLURM_STEP_NUM_TASKS")
  rank, node, local = (env.number("SLURM_" + name) for name in ("PROCID", "NODEID", "LOCALID"))
  node_list, per_node = env.text("SLURM_STEP_NODELIST"), env.text("SLURM_STEP_TASKS_PER_NODE")
  _check_rank(env, "SLURM_PROCID", rank, "SLURM_STEP_NUM_TASKS", num_tasks)
  nodes, tasks = expand_nodes(node_list), expand_tasks_per_node(per_node)
  if len(nodes) != len(tasks):
    raise env.error("SLURM_STEP_NODELIST has %d node%s (%s), but SLURM_STEP_TASKS_PER_NODE has %d "
                    "(%s)" % (len(nodes), "" if len(nodes) == 1 else "s", node_list, len(tasks),
                              per_node))
  if sum(tasks) != num_tasks:
    raise env.error("SLURM_STEP_TASKS_PER_NODE is %s, which makes %d tasks, but "
                    "SLURM_STEP_NUM_TASKS is %d" % (per_node, sum(tasks), num_tasks))
  distribution = env.text("SLURM_DISTRIBUTION") if env.has("SLURM_DISTRIBUTION") else "block"
  places = _distribute(env, tasks, distribution)
  if places[rank] != (node, local):
    raise env.error(
      "SLURM_NODEID=%d and SLURM_LOCALID=%d are not the place of rank %d, which is task %d of node "
      "%d by the distribution %s: give srun --distribution=block or cyclic" % (
        node, local, rank, places[rank][1], places[rank][0], distribution))
  addresses = ["%s:%d" % (nodes[place], counts.port + task) for place, task in places]
  config = _of_ranks(env, addresses, rank, env.num_ps(counts, needed=False), counts.evaluator,
                     "srun --ntasks")
  return FoundCluster(SLURM, "Slurm", env.read, config)


_RESOLVERS: Dict[str, Callable[[_Environment, JobCounts], FoundCluster]] = {
  TF_CONFIG: _from_tf_config, VOLCANO: _from_volcano, JOBSET: _from_jobset,
  INDEXED_JOB: _from_indexed_job, SLURM: _from_slurm}


def _check_rank(env, name, rank, of_all, num_tasks) -> None:
  if rank >= num_tasks:
    raise env.error("%s is %d, but %s is %d: ranks count from 0" % (name, rank, of_all, num_tasks))


def _of_ranks(env, addresses, rank, num_ps, evaluator, more) -> str:
  """Divides the ranks among the jobs; returns the TF_CONFIG of a rank."""
  num_workers = len(addresses) - num_ps - evaluator
  if num_workers < 1:
    wanted = "%d ps, a worker and the evaluator" if evaluator else "%d ps and a worker"
    raise env.error("there %s, but %s need %d at least: raise %s, or give another --num_ps" % (
      "is 1 task" if len(addresses) == 1 else "are %d tasks" % len(addresses), wanted % num_ps,
      num_ps + 1 + evaluator, more))
  jobs = {"ps": addresses[:num_ps], "worker": addresses[num_ps:num_ps + num_workers]}
  if rank < num_ps:
    return make_tf_config(jobs, "ps", rank)
  if rank < num_ps + num_workers:
    return make_tf_config(jobs, "worker", rank - num_ps)
  return make_tf_config(jobs, EVALUATOR, 0)


def make_tf_config(jobs: Dict[str, List[str]], job: str, index: int) -> str:
  """Returns the TF_CONFIG of a task; `jobs` has the addresses of each job, and may have none."""
  return json.dumps({"cluster": {name: hosts for name, hosts in jobs.items() if hosts},
                     "task": {"type": job, "index": index}})


def _distribute(env, tasks: Sequence[int], distribution: str) -> List[Tuple[int, int]]:
  """Returns the node and the local id of each rank, as srun distributes tasks over nodes."""
  kind = re.split("[:,=]", distribution.lower())[0]
  places = [(node, local) for node, count in enumerate(tasks) for local in range(count)]
  if kind in ("block", "*"):
    return places
  if kind == "cyclic":
    return sorted(places, key=lambda place: (place[1], place[0]))
  raise env.error("SLURM_DISTRIBUTION is %s, whose ranks it does not know: give srun "
                  "--distribution=block or cyclic" % distribution)


def expand_nodes(text: str) -> List[str]:
  """Returns the nodes of a list as Slurm writes it: "a[1-2,07],b" is a1, a2, a07 and b.

  A name may have several brackets; the last bracket counts up first. A number keeps the width of
  the first number of its range.

  Raises:
    ClusterError: the text is not such a list.
  """
  nodes = []
  for item in _split_items(text):
    parts, position = [], 0
    for bracket in re.finditer(r"\[([^\[\]]*)\]", item):
      parts += [[item[position:bracket.start()]], _expand_ranges(bracket.group(1), text)]
      position = bracket.end()
    parts.append([item[position:]])
    names = ["".join(name) for name in itertools.islice(itertools.product(*parts), _MOST_NODES + 1)]
    if any(not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name) for name in names[:1]):
      raise _bad_nodes(text, '"%s" is not the name of a node' % item)
    nodes += names
    if len(nodes) > _MOST_NODES:
      raise _bad_nodes(text, "it has more than %d nodes" % _MOST_NODES)
  return nodes


def _split_items(text: str) -> List[str]:
  """Splits a list of nodes at the commas outside of brackets."""
  items, depth = [""], 0
  for letter in text.strip():
    depth += {"[": 1, "]": -1}.get(letter, 0)
    if depth not in (0, 1):
      raise _bad_nodes(text, "its brackets are not in pairs")
    if letter == "," and not depth:
      items.append("")
    else:
      items[-1] += letter
  if depth:
    raise _bad_nodes(text, "its brackets are not in pairs")
  return items


def _expand_ranges(ranges: str, text: str) -> List[str]:
  """Returns the numbers of a bracket such as "01-03,07", as texts."""
  numbers = []
  for part in ranges.split(","):
    match = re.fullmatch(r"([0-9]{1,18})(?:-([0-9]{1,18}))?", part)
    if not match:
      raise _bad_nodes(text, '"%s" in brackets is neither a number nor a range' % part)
    first, last = int(match.group(1)), int(match.group(2) or match.group(1))
    if not 0 <= last - first < _MOST_NODES:
      raise _bad_nodes(text, 'the range "%s" goes down' % part if last < first else
                       "it has more than %d nodes" % _MOST_NODES)
    numbers += [str(number).zfill(len(match.group(1))) for number in range(first, last + 1)]
  return numbers


def expand_tasks_per_node(text: str) -> List[int]:
  """Returns the tasks of each node, as Slurm writes them: "2(x3),1" is 2, 2, 2 and 1.

  Raises:
    ClusterError: the text has another form.
  """
  counts = []
  for part in text.strip().split(","):
    match = re.fullmatch(r"([0-9]{1,5})(?:\(x([0-9]{1,5})\))?", part)
    if not match:
      raise ClusterError('SLURM_STEP_TASKS_PER_NODE is "%s": "%s" must be a number of tasks, such '
                         "as 2, or of tasks and of nodes, such as 2(x3)" % (text, part))
    counts += [int(match.group(1))] * int(match.group(2) or 1)
  return counts


def _bad_nodes(text: str, reason: str) -> ClusterError:
  shown = text if len(text) < 200 else text[:200] + "..."
  return ClusterError('SLURM_STEP_NODELIST is "%s": %s' % (shown, reason))
