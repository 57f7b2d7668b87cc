"""Asks the ps of a running job for its status, and disturbs nobody.

1. The ps at the given address keeps the cluster of its job in its control records.
2. The first ps of the cluster keeps the heartbeats: each task sends one per second, with its step,
   its rates and a few figures more.
3. Each ps has a register of the queues of tf1ps on it.

The look goes through `state.Peek`: it makes nothing on a ps, takes no lock, and is connected for a
fraction of a second. It is no task of the cluster, and sends no heartbeat.
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

LOST = "lost"  # silent for longer than the job's --heartbeat_timeout
SILENT = "silent"  # for longer than a living task is
ABSENT = "absent"  # it has sent no heartbeat
STALLED = "stalled"  # its step lasts much longer than those before
_MEMBER, _RUN = "member:", "run:"


class StatusError(Error, RuntimeError):
  """No ps of tf1ps answered within the limit."""


class TaskStatus(NamedTuple):
  """A task of a job."""

  task: str  # "worker 1"
  role: str  # "chief", "worker" or "ps"
  host: str  # "" if not known
  pid: Optional[int]
  state: str  # starting, training, serving, done, failed, or one of those above
  reason: str  # "waits for ...", "is failed: ...", "is lost since ..."; ""
  global_step: Optional[int]  # the last one that it read
  steps: Optional[int]  # of its process
  examples: Optional[int]
  steps_per_second: Optional[float]
  examples_per_second: Optional[float]
  loss: Optional[float]
  gradient_age_mean: Optional[float]  # in global steps
  gradient_age_highest: Optional[int]
  recoveries: int  # sessions after the first one
  last_seen: Optional[float]  # seconds since its last heartbeat
  stalled: Optional[float] = None  # seconds of the step that lasts much longer than those before


class PsStatus(NamedTuple):
  """The load of a ps, estimated: the traffic of the chief's step times the steps of all workers."""

  task: str  # "ps 0"
  address: str
  problem: str  # why it does not answer; ""
  bytes_sent_per_second: Optional[float]  # to workers; None: not known
  bytes_received_per_second: Optional[float]
  messages_per_second: Optional[float]  # both ways


class QueueStatus(NamedTuple):
  """A queue of tf1ps on a ps."""

  name: str
  kind: str
  task: str
  size: int
  capacity: Optional[int]  # None: no limit
  waiting: List[str]  # "worker 1: get(4), 12.5 s"


class CheckpointStatus(NamedTuple):
  """The last checkpoint, as the chief's last heartbeat has it."""

  directory: str
  global_step: int
  age: float  # seconds


class JobStatus(NamedTuple):
  """A job on the ps."""

  container: str  # "" is the default one
  run: str  # the run's id; "" before there is one
  state: str  # "starting", "running", "ended" or "failed"
  global_step: Optional[int]
  steps_per_second: float  # of all workers
  examples_per_second: float
  tasks: List[TaskStatus]
  ps: List[PsStatus]
  queues: List[QueueStatus]
  checkpoint: Optional[CheckpointStatus]
  checkpoint_note: str  # why there is none


class Status(NamedTuple):
  """The answer of a ps."""

  asked: str  # "ps 0 at host:port"
  time: float  # seconds since the epoch, by this machine's clock
  jobs: List[JobStatus]


class _Seen(NamedTuple):
  """What was read."""

  asked: str
  cluster: Cluster
  records: Dict[str, ControlRecord]
  problems: Dict[str, str]  # {"/job:ps/task:0": why it does not answer}
  queues: Dict[str, List[QueueSeen]]  # by the name of the task


def ask_status(addresses: Sequence[str], limit: float) -> Status:
  """Asks one ps for the status of its jobs.

  Args:
    addresses: of any ps of the cluster, host:port; the first one that answers is asked.
    limit: seconds until a ps must have answered.

  Raises:
    StatusError: none did; the text says what was seen at each address.
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
  keeper = cluster.control_task
  if keeper.name != asked.name:
    seen = probe_task(keeper)
    if not seen.is_up:
      raise StatusError("%s, which keeps the heartbeats: %s" % (_short(keeper.name), seen))
    with Peek(keeper, limit) as peek:
      records = peek.records()
  names = containers_in(records)
  problems, queues = {}, {}
  holders = cluster.ps or [keeper]
  for one in probe_tasks(holders):
    if not one.is_up:
      problems[one.task.name] = one.detail
      continue
    try:
      with Peek(one.task, limit) as peek:
        queues[one.task.name] = peek.queues(names)
    except ControlError as error:
      problems[one.task.name] = str(error)
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
  """Returns the containers of the jobs in control records: a ps alone makes no job."""
  found = {name[len(_RUN):] for name in records if name.startswith(_RUN)}
  for name, record in records.items():
    if name.startswith(_MEMBER) and record.value.get("role") != "ps":
      found.add(name[len(_MEMBER):].rsplit(":", 2)[0])
  return sorted(found)


def make_status(seen: _Seen) -> Status:
  """Makes the status of what was read."""
  names = containers_in(seen.records)
  jobs = [_job(seen, name, len(names) == 1) for name in names]
  if not jobs:
    jobs = [_job(seen, "", True)]
  return Status(seen.asked, time.time(), jobs)


def _job(seen: _Seen, container: str, is_only: bool) -> JobStatus:
  # A ps without --container serves all jobs, and is no member of one container.
  servers = {}
  for member in sorted(members_of(seen.records, None), key=lambda one: -one.age):
    if member.role == "ps":
      servers[member.name] = member
  members = [one for one in members_of(seen.records, container) if one.role != "ps"]
  there = {one.name: one for one in [*servers.values(), *members]}
  tasks = [_task(one) for one in sorted(there.values(), key=_order)]
  if is_only:
    tasks += [_absent(one) for one in seen.cluster.tasks() if one.name not in there]
    tasks.sort(key=_order_of_status)
  run = find_run(seen.records, container)
  chief = next((one for one in members if one.role == "chief"), None)
  living = [one for one in members if state_of(one) == MEMBER_TRAINING]
  rates = [sum(getattr(one, name) for one in living)
           for name in ("steps_per_second", "examples_per_second")]
  steps = [one.global_step for one in members if one.global_step >= 0]
  checkpoint, note = _checkpoint(chief)
  return JobStatus(
    container, "" if run is None else run.id, _state_of_run(run, members),
    max(steps) if steps else None, rates[0], rates[1], tasks, _ps(seen, chief, rates[0]),
    _queues(seen, container, members), checkpoint, note)


def state_of(member: Member) -> str:
  """The state of a task: as it says, or "lost" or "silent" where it has not said it for long.

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
    running = [one for one in members if one.state == MEMBER_TRAINING]
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
  """What to know, and to do, about a task that is not as it should be; "" of others."""
  if state in (LOST, SILENT):
    return "is %s: no heartbeat for %.0f s. See whether process %d runs on %s, and its log%s" % (
      state, member.age, member.pid, member.host,
      "; start the task again if it has ended" if state == LOST else "")
  if member.has_ended:
    return "is %s: %s" % (member.state, member.reason) if member.reason else ""
  if member.blocked:
    return "waits for " + member.blocked
  if "stalled" in member.figures:
    return "has made no step for %.0f s, and none of its last ones took longer than %.3g s. Look " \
           "for a lost task or an empty queue" % tuple(member.figures["stalled"])
  return ""


def _absent(task: Task) -> TaskStatus:
  return TaskStatus(
    _short(task.name), "ps" if task.job == "ps" else "worker", "", None, ABSENT,
    "has sent no heartbeat from %s" % task.address, *[None] * 8, 0, None)


def _ps(seen: _Seen, chief: Optional[Member], steps_per_second: float) -> List[PsStatus]:
  traffic = {} if chief is None else chief.figures.get("traffic", {})
  found = []
  for task in seen.cluster.ps:
    load = [None, None, None]
    if task.name in traffic:
      down, messages_down, up, messages_up = traffic[task.name]
      load = [steps_per_second * each for each in (down, up, messages_down + messages_up)]
    found.append(PsStatus(
      _short(task.name), task.address, seen.problems.get(task.name, ""), *load))
  return found


def _queues(seen: _Seen, container: str, members: List[Member]) -> List[QueueStatus]:
  found = []
  for task, queues in seen.queues.items():
    for queue in queues:
      if queue.container == container:
        waiting = ["%s: %s, %.1f s" % (_short(one.name), call, seconds + one.age)
                   for one in members for name, device, call, seconds in one.waits
                   if name == queue.name and device in ("", task)
                   and state_of(one) not in (LOST, MEMBER_DONE, MEMBER_FAILED)]
        found.append(QueueStatus(
          queue.name, queue.kind, _short(task), queue.size,
          queue.capacity if queue.capacity >= 0 else None, waiting))
  return found


def _checkpoint(chief: Optional[Member]):
  """Returns (the last checkpoint or None, why there is none)."""
  if chief is None:
    return None, "not known: the chief has sent no heartbeat"
  if "checkpoint" not in chief.figures:
    return None, "none is known: the chief has no --checkpoint_dir, or has no session yet"
  directory, step, age = chief.figures["checkpoint"]
  if step < 0:
    return None, "none yet in %s" % directory
  return CheckpointStatus(directory, step, age + chief.age), ""


def _short(name: str) -> str:
  """Returns "worker 1" for "/job:worker/task:1"."""
  return name.replace("/job:", "").replace("/task:", " ")


def _order(member: Member):
  return member.role != "ps", member.role != "chief", member.job, member.index


def _order_of_status(task: TaskStatus):
  job, index = task.task.rsplit(" ", 1)
  return task.role != "ps", task.role != "chief", job, int(index)
