"""Heartbeats: the members of a job, their progress, and which of them are lost.

Every task except the evaluator writes a control record once per second on the control task, which
is the task that keeps the job's control records (ps 0, or the chief if there is no ps). A member
that has been silent for `heartbeat_timeout` seconds is lost, until it sends a heartbeat again. Each
task measures the silence of the others by its own monotonic clock: silence is the time for which a
heartbeat has not changed. After a pause of this task or of its control task, all members get time
for a new heartbeat before a member counts as lost.

How a task ends, how the other tasks learn of its end, and what their messages say
(`Member.say_end`):

  the end                   what tells it                               the messages
  its part is done          its report: "done"                          has done its part and left
  an error                  its report: "failed", and the error         failed: ValueError: ...
  a signal                  its report: "failed", "ended by signal 15"  failed: ended by signal 15
  killed, stopped, cut off  no heartbeat for `heartbeat_timeout`        is lost: silent for 31 s
  it never came             no heartbeat of this run                    never joined; has not come
  a ps that was released    (the run's record has released it)          (none)

The heartbeat of another process of the task revokes the end. session/ending.py makes the reports:
at the close of a session (session/lifecycle.py), or when the code of a program without a session
ends (session/presence.py). A ps learns of its release in state/ending.py. A launcher sees only exit
codes (launch/watch.py), and an evaluator sees only the run's status file. `DoneQueues` serve
programs that report by themselves.
"""

from __future__ import annotations

import collections
import os
import socket
import threading
import time
from typing import Callable, Dict, List, NamedTuple, Optional

from tf1ps.compat import ENDED_BY_SIGNAL, RETRIES, TIMING, own_identity
from tf1ps.state import control, queue_call

MEMBER_STARTING = "starting"
MEMBER_TRAINING = "training"
MEMBER_SERVING = "serving"  # in Server.join: other tasks use its devices
MEMBER_DONE = "done"
MEMBER_FAILED = "failed"
_PREFIX = "member:"
_RATE_WINDOW = 10.0  # a rate covers the heartbeats of this number of seconds
_SHOWN_WAITS = 8  # the most waits of a task that its heartbeat shows


class Member(NamedTuple):
  """The last heartbeat of a task."""

  job: str
  index: int
  role: str  # "chief", "worker" or "ps"
  host: str
  pid: int
  run: str  # the id of the task's run; "" before the task knows the id
  state: str  # one of MEMBER_...
  step: int  # training steps that its process has run
  global_step: int  # the last global step that it read; -1 before the first read
  examples: int  # the number of examples that it has trained on
  reason: str  # why it ended
  age: float  # seconds since the heartbeat
  reset: str = ""  # the token of the reset for which it has stopped its session
  epochs: int = 0  # of the chief: the epochs that the job had finished when it started
  job_examples: int = 0  # of the chief: the examples that the job had trained on before its run
  # Of a task that serves: the number of connections to its server, less the connections that its
  # own process has.
  connections: int = 0
  blocked: str = ""  # what a worker that makes no step waits for
  stop: str = ""  # of the chief: the reason for which the evaluator asks all workers to end
  served: bool = False  # of a task that serves: whether a client outside the cluster has worked
  leaving: str = ""  # of a ps that a signal ends: the token of its request for a last checkpoint
  saved_for: Optional[str] = None  # of a chief: the requests it has answered; None: cannot save
  # Of a chief without ps: whether the last checkpoint is saved, so that no step follows.
  saved: bool = False
  cut_off: bool = False  # of that chief: whether a signal has ended the job before its goal
  heard: Optional[str] = None  # of a chief: "NAME=PROCESS" of each reported end; None: unknown
  process: str = ""  # the identity of the process: Linux containers may share host and pid
  # Of a task with mirrored variables: `RunRecord.writes` of the values with which its session
  # began; below zero: it has lost that session; 0: it has had no session yet.
  session: int = 0
  # For people and machines that watch the job; no task acts on them.
  timeout: float = 30.0  # seconds of silence after which this job takes a member for lost
  steps_per_second: float = 0.0  # of its process, over the last seconds
  examples_per_second: float = 0.0
  waits: tuple = ()  # calls that wait for queues of the job: (name, task, call, seconds)
  figures: Dict[str, object] = {}  # of a task that trains: its `monitoring.WorkerFigures`

  @property
  def name(self) -> str:
    return "/job:%s/task:%d" % (self.job, self.index)

  @property
  def has_ended(self) -> bool:
    return self.state in (MEMBER_DONE, MEMBER_FAILED)

  @property
  def was_stopped(self) -> bool:
    """Whether the task reported that a signal has ended it."""
    return self.state == MEMBER_FAILED and self.reason.startswith(ENDED_BY_SIGNAL)

  def say_end(self, is_lost: bool) -> str:
    """Returns how the task has ended, as a text to follow its name; "" if it has not ended."""
    if self.state == MEMBER_DONE:
      return "has done its part and left"
    if self.state == MEMBER_FAILED:
      return "failed: " + self.reason
    if not is_lost:
      return ""
    step = ", last seen at global step %d" % self.global_step if self.global_step >= 0 else ""
    return "is lost: silent for %.0f s%s" % (self.age, step)


def members_of(records: Dict[str, control.ControlRecord], container: Optional[str]) -> List[Member]:
  """Returns the members of the job in a container (None: of all jobs), sorted by job and index."""
  prefix = _PREFIX if container is None else _prefix(container)
  members = []
  for name, record in records.items():
    if name.startswith(prefix):
      members.append(_member(record))
  return sorted(members, key=lambda member: (member.job, member.index))


def containers_of(records: Dict[str, control.ControlRecord], task) -> Dict[str, Member]:
  """Returns the last heartbeats of a task by the container that it named."""
  members = {}
  for name, record in records.items():
    if name.startswith(_PREFIX) and name.endswith(":%s:%d" % (task.job, task.index)):
      container = name[len(_PREFIX):].rsplit(":", 2)[0]
      members[container] = _member(record)
  return members


def _member(record: control.ControlRecord) -> Member:
  # A task of another release of tf1ps may send further fields.
  known = {name: value for name, value in record.value.items() if name in Member._fields}
  return Member(age=record.age, **known)


def _prefix(container: Optional[str]) -> str:
  return "%s%s:" % (_PREFIX, container or "")


class _Rates:
  """Steps and examples per second over the last heartbeats, from the first step on."""

  def __init__(self):
    self._seen = collections.deque()

  def note(self, now: float, step: int, examples: int) -> None:
    """Notes the counts at a moment."""
    seen = self._seen
    if seen and (seen[-1][1] == 0 or step < seen[-1][1] or examples < seen[-1][2]):
      seen.clear()  # the first step may bring the examples of an earlier process
    while len(seen) > 1 and now - seen[0][0] > _RATE_WINDOW:
      seen.popleft()
    seen.append((now, step, examples))

  def per_second(self) -> tuple:
    """Returns (steps, examples) per second; zeros without two heartbeats."""
    if len(self._seen) < 2:
      return 0.0, 0.0
    first, last = self._seen[0], self._seen[-1]
    seconds = max(last[0] - first[0], 1e-9)
    return tuple(round((b - a) / seconds, 3) for a, b in zip(first[1:], last[1:]))


# The last heartbeat that was started in this process. A process global, because the room that shows
# it is above the rooms that start the heartbeat's thread.
_latest: Optional["Heartbeat"] = None


def latest_heartbeat() -> Optional["Heartbeat"]:
  """Returns the last heartbeat that this process has started, or None."""
  return _latest


class Heartbeat:
  """Sends this task's heartbeats in a thread, and keeps the heartbeats of all members.

  Attributes:
    previous: the last heartbeat of an earlier process of this task, or None; set by the first beat.
  """

  previous: Optional[Member] = None

  def __init__(self, table: control.ControlTable, task, role: str, container: Optional[str],
               heartbeat_timeout: float, on_records=None):
    """Prepares the heartbeat; `start` begins it.

    Args:
      table: the control records of the control task.
      task: the `Task` of this process.
      role: "chief", "worker" or "ps".
      container: the job's container; None for a ps without a container, which sees all members.
      heartbeat_timeout: seconds of silence after which a member is lost.
      on_records: called with all control records after each beat, in the thread of the beat.
    """
    self._table, self._container = table, container
    self._name = "%s%s:%d" % (_prefix(container), task.job, task.index)
    self._heartbeat_timeout = heartbeat_timeout
    # After a silence of the control task, the records of all members are older by the length of the
    # silence and up to one more beat. So a silence longer than `_gap` restarts the steady time.
    self._every = min(TIMING.heartbeat_interval, heartbeat_timeout / 5.0)
    self._gap = 3.5 * self._every
    self._on_records = on_records
    self._lock = threading.Lock()
    self._fields = dict(
      job=task.job, index=task.index, role=role, host=socket.gethostname(), pid=os.getpid(), run="",
      state=MEMBER_STARTING, step=0, global_step=-1, examples=0, reason="", epochs=0,
      job_examples=0, saved_for=None, heard=None, timeout=heartbeat_timeout, blocked="",
      process=own_identity(), session=0)
    self._rates, self._figures = _Rates(), None
    self._records: Dict[str, control.ControlRecord] = {}
    self._read_at: Optional[float] = None
    self._steady_since: Optional[float] = None
    self._has_looked = False
    self._stopped = threading.Event()
    self._thread = threading.Thread(target=self._beat_on, daemon=True, name="tf1ps: heartbeat")

  def start(self) -> None:
    """Starts the thread, unless it has been started."""
    global _latest
    if self._thread.ident is None:
      _latest = self
      self._thread.start()

  def hasten(self) -> None:
    """Sends and reads heartbeats as often as a waiting loop looks at them."""
    self._every = min(self._every, TIMING.poll_interval)

  def stop(self) -> None:
    """Ends the thread and closes its session, within the limits of a call."""
    self._stopped.set()
    if self._thread.is_alive():
      self._thread.join(TIMING.thread_end_limit)
    if not self._thread.is_alive():
      self._table.close()

  def go_through_control_task(self) -> None:
    """From here on, uses a session on the control task's own server.

    A control task on TensorFlow 1 refuses graphs from a server on TensorFlow 2, but accepts graphs
    from a client on TensorFlow 2.
    """
    before, control_task = self._table, self._table.control_task
    self._table = control.ControlTable("grpc://" + control_task.address, control_task, control_task)
    before.close()

  def set(self, **fields) -> None:
    """Sets fields of the next heartbeats, such as run, state, step, global_step and examples."""
    with self._lock:
      self._fields.update(fields)

  def get(self, field: str):
    """Returns a field of the next heartbeat."""
    with self._lock:
      return self._fields[field]

  def describe_by(self, figures: Callable[[], object]) -> None:
    """Sends more figures of this task with each heartbeat.

    `figures` is called in the heartbeat's thread before each beat, and in other threads. It must
    not wait for anything: an error loses the figures, but a wait delays the beat. It returns an
    object with an attribute `steps`, the steps of this process, and a method `to_json`, which
    returns the figures that other tasks see.
    """
    self._figures = figures

  def figures(self) -> object:
    """Returns the figures of this task now, or None if there are none or they cannot be read."""
    try:
      return None if self._figures is None else self._figures()
    except Exception:  # a figure never ends a heartbeat
      return None

  def own(self) -> Member:
    """Returns this task as its next heartbeat describes it; its age is 0."""
    figures = self.figures()
    with self._lock:
      fields, rates = dict(self._fields), self._rates.per_second()
    if figures is not None:  # they include the steps of threads beside the loop
      fields["step"] = max(fields["step"], figures.steps)
    waits = tuple(list(call) for call in queue_call.waiting_calls()[:_SHOWN_WAITS])
    return Member(age=0.0, **dict(
      fields, steps_per_second=rates[0], examples_per_second=rates[1], waits=waits,
      figures={} if figures is None else figures.to_json()))

  def try_beat(self) -> None:
    """Sends a heartbeat now, if the control task answers."""
    try:
      self.beat()
    except control.ControlError:
      pass

  def beat(self) -> None:
    """Sends a heartbeat now and reads those of all members; raises ControlError."""
    if not self._has_looked:
      # Reads the record of an earlier process of this task before this process overwrites it.
      left = [m for m in members_of(self._table.read(), self._container)
              if (m.job, m.index) == (self.get("job"), self.get("index"))]
      self.previous, self._has_looked = (left[0] if left else None), True
    own = self.own()
    with self._lock:
      self._rates.note(time.monotonic(), own.step, own.examples)
    mine = {self._name: self._record(own)}
    records = self._table.exchange(mine)
    now = time.monotonic()
    with self._lock:
      disturbed = self._read_at is None or now - self._read_at > self._gap
      if disturbed:
        self._steady_since = now
      self._records, self._read_at = records, now
    if self._on_records is not None:
      self._on_records(records)

  def _record(self, own: Member) -> Dict[str, object]:
    """Returns the fields of a heartbeat, except fields that have their default."""
    return {name: value for name, value in own._asdict().items()
            if name != "age" and value != Member._field_defaults.get(name, self)}

  def report(self, state: str, reason: str, limit: float = TIMING.report_limit,
             is_heard=lambda: True) -> None:
    """Reports this task's end; tries again until the limit.

    `state` is MEMBER_DONE or MEMBER_FAILED. The limit is half a second at most if the control task
    has never answered. If the control task is lost, the report is lost, too. So the report is
    repeated until `is_heard` returns True, but for at most `TIMING.heard_limit` seconds while the
    control task answers.

    Raises:
      ControlError: the control task took no report within the limit.
    """
    self.set(state=state, reason=reason)
    if self.silence is None:
      limit = min(limit, TIMING.unheard_report_limit)
    deadline, answers_since = time.monotonic() + limit, None
    while True:
      try:
        self.beat()
        answers_since = answers_since or time.monotonic()
        if is_heard() or time.monotonic() - answers_since > TIMING.heard_limit:
          return
      except control.ControlError:
        answers_since = None
        if time.monotonic() >= deadline:
          raise
      self._stopped.wait(next(RETRIES.report.pauses()))

  def members(self) -> List[Member]:
    """Returns the members as of the last beat, with their ages as of now."""
    with self._lock:
      if self._read_at is None:
        return []
      since = time.monotonic() - self._read_at
      records = self._records
    return [m._replace(age=m.age + since) for m in members_of(records, self._container)]

  @property
  def silence(self) -> Optional[float]:
    """Seconds since the control task last answered; None before the first answer."""
    with self._lock:
      return None if self._read_at is None else time.monotonic() - self._read_at

  def is_lost(self, member: Member) -> bool:
    """Whether a member is lost: it has been silent for too long, and has not reported its end."""
    with self._lock:
      steady = self._steady_since
      fresh = self._read_at is not None and time.monotonic() - self._read_at < self._gap
    steady_limit = min(TIMING.steady_beats * TIMING.heartbeat_interval, self._heartbeat_timeout)
    if not fresh or time.monotonic() - steady < steady_limit:
      return False
    return not member.has_ended and member.age > self._heartbeat_timeout

  def _beat_on(self):
    while True:
      try:
        self.beat()
      except control.ControlError:
        pass  # `silence` grows for the callers that watch it; the next beat tries again
      if self._stopped.wait(self._every):
        return
