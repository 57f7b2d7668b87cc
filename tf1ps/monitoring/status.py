"""Asks the ps of a running job for its status, without disturbing the job.

1. The ps at the given address keeps the cluster of its job in its control records.
2. The first ps of the cluster keeps the heartbeats: each task sends a heartbeat every second, with
   its step, its rates and a few more figures.
3. Each ps has a register of its tf1ps queues.

`state.Peek` reads these records: it creates nothing on a ps, takes no lock, and is connected for a
fraction of a second. This process is not a task of the cluster, and sends no heartbeat.
"""

from __future__ import annotations

import time
from typing import Dict, List, NamedTuple, Optional, Sequence

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  ANOTHER_TASK,
  Cluster,
  Task,
  bypass_proxy,
  from_cluster_spec,
  probe_task,
  probe_tasks,
)
from tf1ps.compat import TIMING, CallError, Error, get_status
from tf1ps.monitoring.job_status import (
  ABSENT,
  LOST,
  SILENT,
  STALLED,
  CheckpointStatus,
  JobStatus,
  PsStatus,
  QueueStatus,
  Status,
  TaskStatus,
)
from tf1ps.state import (
  CLUSTER_RECORD,
  MEMBER_DONE,
  MEMBER_FAILED,
  MEMBER_SERVING,
  MEMBER_TRAINING,
  ControlError,
  ControlRecord,
  Member,
  Peek,
  QueueSeen,
  RunRecord,
  find_run,
  members_of,
)

_MEMBER, _RUN = "member:", "run:"


class StatusError(Error, RuntimeError):
  """No ps of tf1ps answered within the limit."""


class _Seen(NamedTuple):
  """The records of a cluster, as read."""

  asked: str
  cluster: Cluster
  records: Dict[str, ControlRecord]
  problems: Dict[str, str]  # {"/job:ps/task:0": why it does not answer}
  queues: Dict[str, List[QueueSeen]]  # by the name of the task


def ask_status(addresses: Sequence[str], limit: float) -> Status:
  """Asks a ps for the status of its jobs.

  Args:
    addresses: addresses of any ps of the cluster, host:port; the first ps that answers counts.
    limit: seconds until a ps must have answered.

  Raises:
    StatusError: no ps answered; the text says what was seen at each address.
  """
  until = time.monotonic() + limit
  while True:
    seen, problems = None, []
    for address in addresses:
      try:
        seen = _look(address, max(1.0, until - time.monotonic()))
        break
      except (ControlError, CallError, StatusError) as error:
        problems.append(str(error))
    if seen is not None:
      return make_status(seen)
    if time.monotonic() >= until:
      raise StatusError("%s. Give the address of a ps of a running job, and --tls_dir if "
                        "the job has encrypted links." % "; ".join(problems))
    time.sleep(min(TIMING.poll_interval, max(0.0, until - time.monotonic())))


def _look(address: str, limit: float) -> _Seen:
  limit = min(limit, 5.0)
  asked = _task_at(address)
  with Peek(asked, limit) as peek:
    records = peek.records()
  cluster = _cluster_in(records, asked)
  bypass_proxy(cluster.tasks())
  control_task = cluster.control_task
  if control_task.name != asked.name:
    seen = probe_task(control_task)
    if not seen.is_up:
      raise StatusError("%s, which keeps the heartbeats: %s" % (_short(control_task.name), seen))
    with Peek(control_task, limit) as peek:
      records = peek.records()
  names = containers_in(records)
  problems, queues = {}, {}
  for probed in probe_tasks(cluster.ps or [control_task]):
    if not probed.is_up:
      problems[probed.task.name] = probed.detail
      continue
    try:
      with Peek(probed.task, limit) as peek:
        queues[probed.task.name] = peek.queues(names)
    except ControlError as error:
      problems[probed.task.name] = str(error)
  return _Seen("%s at %s" % (_short(asked.name), address), cluster, records, problems, queues)


def _task_at(address: str) -> Task:
  task = Task("ps", 0, address)
  bypass_proxy([task])
  seen = probe_task(task)
  if not (seen.is_up or seen.state == ANOTHER_TASK):
    raise StatusError("%s: %s" % (address, seen.detail))
  spec = tf.DeviceSpec.from_string(get_status(address, TIMING.probe_limit)[0].name)
  return Task(spec.job, spec.task, address)


def _cluster_in(records: Dict[str, ControlRecord], asked: Task) -> Cluster:
  jobs = records[CLUSTER_RECORD].value if CLUSTER_RECORD in records else None
  if jobs is None:
    run = find_run(records, None)
    jobs = None if run is None else run.jobs
  if jobs is None:
    raise StatusError("%s at %s keeps no records of a job of tf1ps" % (
      _short(asked.name), asked.address))
  return from_cluster_spec(jobs, asked.job, asked.index)


def containers_in(records: Dict[str, ControlRecord]) -> List[str]:
  """Returns the containers of the jobs in control records; a ps without workers makes no job."""
  containers = {name[len(_RUN):] for name in records if name.startswith(_RUN)}
  for name, record in records.items():
    if name.startswith(_MEMBER) and record.value.get("role") != "ps":
      containers.add(name[len(_MEMBER):].rsplit(":", 2)[0])
  return sorted(containers)


def make_status(seen: _Seen) -> Status:
  """Makes the status from the records."""
  names = containers_in(seen.records) or [""]
  return Status(seen.asked, time.time(), [_job(seen, name, len(names) == 1) for name in names])


def _job(seen: _Seen, container: str, is_only: bool) -> JobStatus:
  # A ps without --container serves the jobs of all containers.
  servers = {}
  for member in sorted(members_of(seen.records, None), key=lambda member: -member.age):
    if member.role == "ps":
      servers[member.name] = member
  members = [member for member in members_of(seen.records, container) if member.role != "ps"]
  present = {member.name: member for member in [*servers.values(), *members]}
  tasks = list(map(_task, present.values()))
  if is_only:
    tasks += [_absent(task) for task in seen.cluster.tasks() if task.name not in present]
  tasks.sort(key=_order)
  run = find_run(seen.records, container)
  chief = next((member for member in members if member.role == "chief"), None)
  living = [member for member in members if state_of(member) == MEMBER_TRAINING]
  rates = [sum(getattr(member, name) for member in living)
           for name in ("steps_per_second", "examples_per_second")]
  steps = [member.global_step for member in members if member.global_step >= 0]
  checkpoint, note = _checkpoint(chief)
  return JobStatus(
    container, "" if run is None else run.id, _state_of_run(run, members),
    max(steps) if steps else None, rates[0], rates[1], tasks, _ps(seen, chief, rates[0]),
    _queues(seen, container, members), checkpoint, note)


def state_of(member: Member) -> str:
  """Returns the state that a task reports, or "lost" or "silent" without a recent heartbeat.

  A task that trains is "stalled" while its step lasts too long.
  """
  if member.has_ended:
    return member.state
  if member.age > member.timeout:
    return LOST
  if member.age > TIMING.alive_within:
    return SILENT
  stalls = member.state == MEMBER_TRAINING and (member.blocked or "stalled" in member.figures)
  return STALLED if stalls else member.state


def _state_of_run(run: Optional[RunRecord], members: List[Member]) -> str:
  if run is None:
    running = [member for member in members if member.state == MEMBER_TRAINING]
    return "running" if running else "starting"
  if run.ended:
    return "failed" if run.failed else "ended"
  return "running" if run.initialised else "starting"


def _task(member: Member) -> TaskStatus:
  state, figures = state_of(member), member.figures
  trains = member.role != "ps" and member.state != MEMBER_SERVING
  moves = trains and state == MEMBER_TRAINING
  age = figures.get("age") or [None, None]
  return TaskStatus(
    _short(member.name), member.role, member.host, member.pid, state, _reason(member, state),
    member.global_step if trains and member.global_step >= 0 else None,
    member.step if trains else None, member.examples if trains else None,
    member.steps_per_second if moves else None, member.examples_per_second if moves else None,
    figures.get("loss"), age[0], age[1], figures.get("recoveries", 0), member.age,
    figures["stalled"][0] if state == STALLED and "stalled" in figures else None)


def _reason(member: Member, state: str) -> str:
  """Returns what is wrong with a task, and what to do; "" if nothing is."""
  if state in (LOST, SILENT):
    return "is %s: no heartbeat for %.0f s. See whether process %d runs on %s, and its log%s" % (
      state, member.age, member.pid, member.host,
      "; start the task again if it has ended" if state == LOST else "")
  if member.has_ended:
    return "is %s: %s" % (member.state, member.reason) if member.reason else ""
  if member.blocked:
    return "waits for " + member.blocked
  if "stalled" in member.figures:
    return ("has made no step for %.0f s, and none of its last steps took longer than %.3g s. Look "
            "for a lost task or an empty queue" % tuple(member.figures["stalled"]))
  return ""


def _absent(task: Task) -> TaskStatus:
  return TaskStatus(
    _short(task.name), "ps" if task.job == "ps" else "worker", "", None, ABSENT,
    "has sent no heartbeat from %s" % task.address, *[None] * 8, 0, None)


def _ps(seen: _Seen, chief: Optional[Member], steps_per_second: float) -> List[PsStatus]:
  traffic = {} if chief is None else chief.figures.get("traffic", {})
  loads = []
  for task in seen.cluster.ps:
    load = [None, None, None]
    if task.name in traffic:
      down, messages_down, up, messages_up = traffic[task.name]
      load = [steps_per_second * figure for figure in (down, up, messages_down + messages_up)]
    loads.append(PsStatus(_short(task.name), task.address, seen.problems.get(task.name, ""), *load))
  return loads


def _queues(seen: _Seen, container: str, members: List[Member]) -> List[QueueStatus]:
  statuses = []
  for task, queues in seen.queues.items():
    for queue in queues:
      if queue.container == container:
        waiting = ["%s: %s, %.1f s" % (_short(member.name), call, seconds + member.age)
                   for member in members for name, device, call, seconds in member.waits
                   if name == queue.name and device in ("", task)
                   and state_of(member) not in (LOST, MEMBER_DONE, MEMBER_FAILED)]
        statuses.append(QueueStatus(
          queue.name, queue.kind, _short(task), queue.size,
          queue.capacity if queue.capacity >= 0 else None, waiting))
  return statuses


def _checkpoint(chief: Optional[Member]):
  """Returns (the last checkpoint, "") or (None, the reason)."""
  if chief is None:
    return None, "not known: the chief has sent no heartbeat"
  if "checkpoint" not in chief.figures:
    return None, "none is known: the chief has no --checkpoint_dir, or has no session yet"
  directory, step, age = chief.figures["checkpoint"]
  if step < 0:
    return None, "none yet in %s" % directory
  return CheckpointStatus(directory, step, age + chief.age), ""


def _short(name: str) -> str:
  """Returns the short name of a task: "worker 1" for "/job:worker/task:1"."""
  return name.replace("/job:", "").replace("/task:", " ")


def _order(task: TaskStatus):
  job, index = task.task.rsplit(" ", 1)
  return task.role != "ps", task.role != "chief", job, int(index)
