"""A task's membership of a run, from the task's first heartbeat to its last heartbeat.

A `Membership` holds what this task shares with the other tasks of its job: the heartbeat, the
watch of the other members (`MemberWatch`), the run (`CurrentRun`) with its records (`RunRecords`),
and the directory of the run (`RunDirectory`, `DirectoryWatch`). The session creator calls these
methods:

  the chief        of `run`: `adopt` (does the live state belong to this run?),
                   `begin_initialisation`, `mark_initialised`; then `begin_training`, once its own
                   local state is initialised
  another worker   `find_run`, until it returns the initialised run of a living chief; then `join`;
                   `chief_trains`, before it uses local state that only the chief initialises
  both             `report`; then the chief calls `release`
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Callable, Dict, List, Optional

import tensorflow.compat.v1 as tf

from tf1ps.cluster import (
  JobLostError,
  LimitExceeded,
  ServerRecord,
  TaskHeldError,
  awaited_at_exit,
  call_within,
  probe_task,
  record_of_task,
  this_process,
)
from tf1ps.compat import LOST_STATE_ERRORS, TIMING, Error
from tf1ps.session import container_check, reset_watch, run_directory
from tf1ps.session.current_run import CurrentRun
from tf1ps.session.directory_watch import DirectoryWatch
from tf1ps.session.member_watch import MemberWatch
from tf1ps.session.run_records import RunRecords
from tf1ps.state import (
  CLUSTER_RECORD,
  MEMBER_DONE,
  MEMBER_FAILED,
  MEMBER_TRAINING,
  RUN_RUNNING,
  ControlError,
  ControlRecord,
  Heartbeat,
  Member,
  RunRecord,
  containers_of,
  find_run,
  table_for,
)

_log = logging.getLogger("tf1ps")
_NO_GOAL = "the end of the data"  # the goal of a job without a limit of steps, epochs or examples
_done: set = set()  # a process global: ids of the runs in which this process has done its part


class ClusterMismatchError(Error, RuntimeError):
  """Another task of the job was started with a different cluster."""


class Membership:
  """This task's membership of a run.

  Attributes:
    cluster: the cluster as this task knows it.
    state_tasks: the tasks that keep the variables of the job: the ps, or the chief without ps.
    heartbeat: the `state.Heartbeat` of this task.
    recovery_timeout: seconds that a ps may stay away.
    resets: the `ResetWatch` of the container of the job.
    run: the `CurrentRun`.
    goal: the requested end, as flags; the chief writes the goal into an ended run's status file.
    watch: the `MemberWatch` of the other members.
  """

  def __init__(self, record: ServerRecord, checkpoint_dir: Optional[str] = None,
               heartbeat_timeout: Optional[float] = None):
    """Prepares the membership; `start` starts the heartbeat.

    Args:
      record: the record of this task's server.
      checkpoint_dir: the directory of the run's status file, which the chief writes, or None.
      heartbeat_timeout: seconds of silence until a task is lost; None takes the server's value.
    """
    self.record = record
    self.cluster = record.cluster
    self.heartbeat_timeout = (
      record.heartbeat_timeout if heartbeat_timeout is None else heartbeat_timeout)
    self.recovery_timeout = record.recovery_timeout or self.heartbeat_timeout
    self.is_chief = self.cluster.is_chief
    self._is_over, self.goal = False, ""
    self._is_proven, self._has_started = record.is_proven, False
    self._records = RunRecords(record)
    self.state_tasks = self._records.state_tasks
    self._directory = None
    if checkpoint_dir and self.is_chief:
      self._directory = run_directory.RunDirectory(
        checkpoint_dir, self.heartbeat_timeout, self.cluster.control_task.address)
    self._at_loss: Optional[Callable[[BaseException], None]] = None
    self._at_stop: List[Callable[[], None]] = []
    self._lock = threading.Lock()
    self.heartbeat = Heartbeat(
      table_for(record, self.cluster.control_task), self.cluster.task,
      "chief" if self.is_chief else "worker", record.container, self.heartbeat_timeout,
      self._look)
    self.watch = MemberWatch(record, self.heartbeat, self.state_tasks)
    self.run = CurrentRun(record, self._records, self.heartbeat, self.watch, self._directory)
    if self.is_chief:
      self.heartbeat.set(heard="")
    self._directory_watch = None
    if self._directory is not None:
      self._directory_watch = DirectoryWatch(
        self._directory, self.heartbeat, self.watch, lambda: self.run_id, self._lose)
    self.resets = reset_watch.ResetWatch(
      self.heartbeat, lambda: self._records.read(self.cluster.control_task), record.container)

  def start(self) -> None:
    """Announces the run in its directory, and starts the heartbeat. A second call does nothing.

    If the other tasks may reach another process at this task's address, the heartbeat starts after
    the path check. Raises ClusterMismatchError if the control task has another cluster: a session
    of this task would end the sessions of that cluster's task with the same name.
    """
    if self._is_proven and not self._has_started:
      self._is_proven = False  # after an error here, no report is sent either
      self._compare_from_outside(self.cluster.control_task)
      self._is_proven = self._has_started = True
    if self._directory is not None:
      self._directory.open()
    if self._is_proven:
      self._start_beats()

  def _start_beats(self):
    self.heartbeat.start()
    if self._directory_watch is not None:
      self._directory_watch.start()

  def _compare_from_outside(self, task) -> None:
    if record_of_task(task) is not None or task.job != "ps" or not probe_task(task).is_up:
      return
    table = table_for(self.record._replace(is_proven=False), task)
    try:
      theirs = table.read().get(CLUSTER_RECORD)
    except ControlError:  # the session creator asks again
      return
    finally:
      table.close()
    if theirs is not None:
      self.compare_with(task, theirs.value)

  @property
  def run_id(self) -> str:
    """The id of the run, or "" before it is known."""
    return self.run.id

  def claim_directory(self) -> None:
    """Raises DirectoryInUseError if another open session of this process uses the directory."""
    if self._directory is not None:
      self._directory.claim()

  def give_directory_back(self) -> None:
    """Lets other sessions of this process save into the directory."""
    if self._directory is not None:
      self._directory.give_back()

  def prove(self) -> None:
    """Starts the heartbeat after the path check, if it has not started."""
    if not self._is_proven:
      self._is_proven = True
      self._start_beats()

  def check_not_held(self) -> None:
    """Raises TaskHeldError if another process sends this task's heartbeats.

    The control task must answer.
    """
    age = math.inf
    while not self._is_proven:
      records = self._records.read(self.cluster.control_task)
      others = [m for m in containers_of(records, self.cluster.task).values()
                if not m.has_ended and m.age < TIMING.alive_within]
      if not others:
        return
      last = min(others, key=lambda member: member.age)
      if last.age < age < math.inf:  # a heartbeat has come since the last look
        raise TaskHeldError(
          "%s is already process %d on %s; this process is %s. Is --task_index given twice?" % (
            self.cluster.task.name, last.pid, last.host, this_process()))
      age = last.age
      time.sleep(TIMING.fast_poll_interval)

  def at_stop(self, callback: Callable[[], None]) -> None:
    """Calls a callback after the last report and the last heartbeat."""
    self._at_stop.append(callback)

  def stop(self) -> None:
    """Stops the heartbeat and closes the sessions, but does not wait for a silent task."""
    def stop():
      with awaited_at_exit():
        if self._directory_watch is not None:
          self._directory_watch.stop()
        self.heartbeat.stop()
        self._records.close()
        for callback in self._at_stop:
          callback()

    try:
      call_within(TIMING.thread_end_limit, "ending the heartbeat", stop)
    except LimitExceeded as error:
      _log.info("%s", error)

  def at_loss(self, callback: Optional[Callable[[BaseException], None]]) -> None:
    """Calls a callback with the error that must end this session.

    The error is an AbortedError if a reset or another run has cleared the session's variables. It
    is a DirectoryInUseError if another job has taken the chief's directory.
    """
    self.resets.begin(callback)
    self._at_loss = callback

  @property
  def examples_before(self) -> int:
    """Returns the examples that an earlier process of this task trained on in this run."""
    previous = self.heartbeat.previous
    if previous is None or not self.run_id or previous.run != self.run_id:
      return 0
    return previous.examples

  def explain(self, error: BaseException) -> BaseException:
    """Returns an AbortedError if a reset or another run cleared the variables, else `error`."""
    meaning = self.resets.explain(error)
    if meaning is not error or not isinstance(error, LOST_STATE_ERRORS) or not self.run_id:
      return meaning
    try:
      others = {run.id for run in self._records.runs() if run is not None} - {self.run_id}
    except ControlError:
      return error
    if not others:
      return error
    return tf.errors.AbortedError(
      None, None, "another run (%s) was begun on the ps" % ", ".join(sorted(others)))

  @property
  def is_over(self) -> bool:
    """Whether this task no longer needs other workers for its steps."""
    return self._is_over

  @is_over.setter
  def is_over(self, value: bool) -> None:
    with self._lock:
      self._is_over = value

  def unless_over(self, end_session: Callable[[], None]) -> None:
    """Calls `end_session` unless `is_over`; a lock keeps `is_over` unchanged during the call."""
    with self._lock:
      if not self._is_over:
        end_session()

  # Mirrored variables: the sessions of all workers begin together, and end together.

  def begin_session(self) -> None:
    """Notes that this task has a session on the values that the chief restored last."""
    self.heartbeat.set(session=self.run.record.writes)

  def end_session(self) -> None:
    """Notes that this task has lost its session, so that all other tasks end their sessions."""
    if self.heartbeat.get("session") > 0:
      self.heartbeat.set(session=-self.heartbeat.get("session"))
      self.heartbeat.try_beat()

  def _look_at_sessions(self) -> None:
    mine, callback = self.heartbeat.get("session"), self._at_loss
    if mine <= 0 or callback is None:
      return
    ended = [member.name for member in self.heartbeat.members() if member.run == self.run_id and (
      member.session == -mine or member.session > mine)]
    if ended:
      error = tf.errors.AbortedError(
        None, None, "%s begins a new session: this task begins one, too" % ", ".join(ended))
      self.unless_over(lambda: callback(error))

  @property
  def was_done(self) -> bool:
    """Whether an earlier process of this task has done the task's part in this run."""
    previous = self.heartbeat.previous
    return (not self.is_chief and previous is not None and previous.state == MEMBER_DONE
            and previous.run == self.run_id and self.run_id not in _done)

  @property
  def is_saved(self) -> bool:
    """Whether, by its heartbeats, the chief of a job without ps has saved the last checkpoint."""
    chief = self.watch.chief()
    return not self.is_chief and chief is not None and chief.saved

  def check_part(self) -> None:
    """Ends the start of a worker if the chief of a job without ps has saved the last checkpoint.

    Raises PartDoneError, or JobLostError if a signal has ended the job before its goal.
    """
    if not self.is_saved:
      return
    if self.watch.chief().cut_off:
      raise JobLostError("a signal has ended the run before its goal, and the chief has saved the "
                         "last checkpoint: start all tasks again, and the run goes on")
    raise run_directory.PartDoneError("the chief has saved the last checkpoint of the run")

  @property
  def awaits_nothing(self) -> bool:
    """Whether this worker of a job without ps may leave after its last step.

    The chief has saved the last checkpoint, or a signal has ended the chief.
    """
    chief = self.watch.chief()
    return self.is_saved or chief is not None and chief.was_stopped

  @property
  def has_trained(self) -> bool:
    """Whether an earlier process of this chief has saved the last checkpoint of this goal."""
    return self._directory is not None and self._directory.has_trained(self.goal or _NO_GOAL)

  def note_saved(self, is_goal: bool) -> None:
    """Notes that the chief of a job without ps has saved the last checkpoint: no step follows.

    `is_goal`: whether the job has reached its goal. If False, a signal has ended the job, and a
    worker that a scheduler starts again has not done its part.
    """
    if self._directory is not None and is_goal:
      try:
        self._directory.write(self.run_id, RUN_RUNNING, self.heartbeat.get("global_step"),
                              goal=self.goal or _NO_GOAL)
      except tf.errors.OpError as error:  # the write at the end of the run raises such an error
        _log.warning("the run's status file was not written: %s", error)
    self.heartbeat.set(saved=True, cut_off=not is_goal)
    self.heartbeat.try_beat()

  def repeat_report(self) -> None:
    """Repeats the earlier process's report of its end, which this process's heartbeats replaced.

    If the run has ended already, no task is left to read the report.
    """
    previous = self.heartbeat.previous
    if previous is not None:
      self.heartbeat.set(step=previous.step, examples=previous.examples,
                         global_step=previous.global_step)
    if previous is not None or self.is_saved:
      self.report(MEMBER_DONE, "" if previous is None else previous.reason)

  def compare_clusters(self) -> None:
    """Raises ClusterMismatchError if a ps was started with a different cluster."""
    for task, jobs in self._records.clusters().items():
      self.compare_with(task, jobs)

  def compare_with(self, task, jobs: dict) -> None:
    """Raises ClusterMismatchError if another task has a different description of the cluster."""
    differences = self.cluster.differences(jobs)
    if differences:
      raise ClusterMismatchError("%s at %s was started with a different cluster than %s: %s" % (
        task.name, task.address, self.cluster.task.name, "; ".join(differences)))

  def find_run(self) -> Optional[RunRecord]:
    """Returns the run that a living chief has initialised on all state tasks, or None."""
    records = self._records.read(self.cluster.control_task)
    container_check.check_worker(records, self.cluster.chief, self.record.container)
    chief = self.watch.chief(records)
    run = find_run(records, self.record.container)
    if run is None or run.ended or not run.initialised:
      return None
    if chief is None or chief.run != run.id or chief.has_ended:
      return None
    if chief.age > self.heartbeat_timeout:
      return None
    if (run.id, -run.writes) == (self.run_id, self.heartbeat.get("session")):
      return None  # this task lost its session on these values: the chief restores them again
    return run if all(other == run for other in self._records.runs()) else None

  def find_chief(self) -> Optional[Member]:
    """Returns the chief's last heartbeat, read now, if the chief lives; else None."""
    try:
      records = self._records.read(self.cluster.control_task)
    except ControlError:
      return None
    chief = self.watch.chief(records)
    if chief is None or chief.has_ended or chief.age > self.heartbeat_timeout:
      return None
    return chief

  def join(self, run: RunRecord) -> None:
    """Makes this task a member of a run."""
    self.run.join(run)
    self.heartbeat.set(run=run.id, state=MEMBER_TRAINING, session=0)
    self.heartbeat.try_beat()  # the chief's next process must see that its run has a member
    _log.info("joined run %s", run.id)

  def claim_trained_run(self, interrupted: Callable[[], None]) -> None:
    """Continues a run whose last checkpoint is saved, as `has_trained` says.

    Raises DirectoryInUseError if another living job uses the directory.
    """
    self._directory.await_free(lambda run_id: False, interrupted)
    self.prove()
    self.run.claim()
    self.heartbeat.set(run=self.run_id, global_step=self._directory.step_left)
    self.note_saved(is_goal=True)

  def begin_training(self) -> None:
    """Notes that the chief has also initialised its local state."""
    self.heartbeat.set(state=MEMBER_TRAINING)
    self.heartbeat.try_beat()

  def chief_trains(self) -> bool:
    """Whether the chief has also initialised its local state of this run; reads the records now."""
    try:
      records = self._records.read(self.cluster.control_task)
    except ControlError:
      return False
    chief = self.watch.chief(records)
    if chief is None or chief.run != self.run_id:
      return False
    return chief.state == MEMBER_TRAINING or chief.has_ended and chief.global_step >= 0

  def release(self, failed: bool = False, reason: str = "") -> None:
    """Marks the run as ended on every state task, which releases the ps.

    `reason` says why the run failed, if it has.
    """
    self.run.release(failed, reason, self.goal, self.recovery_timeout)

  def report(self, state: str, reason: str, limit: float = TIMING.report_limit) -> bool:
    """Reports the end of this task within `limit` seconds; returns whether the report arrived.

    A chief that has failed first writes the failure into the run's status file.
    """
    if state == MEMBER_FAILED and self._directory is not None:
      try:
        call_within(TIMING.report_limit, "writing the run's status file",
                    self._directory.write_failure, self.run_id,
                    self.heartbeat.get("global_step"), reason)
      except LimitExceeded as error:  # the disk does not answer
        _log.warning("%s", error)
    if not self._is_proven:
      return False  # the report would be about another process
    if state == MEMBER_DONE:
      _done.add(self.run_id)
    try:
      call_within(limit + 0.2, "reporting this task's end", self.heartbeat.report, state, reason,
                  limit, lambda: state == MEMBER_FAILED or self._is_heard())
      return True
    except (ControlError, LimitExceeded) as error:
      _log.warning("the other tasks could not be notified that this task is %s%s: %s",
                   state, " (%s)" % reason if reason else "", error)
      return False

  def _is_heard(self) -> bool:
    """Whether the chief has read the report of this worker's end, or never will."""
    chief = self.watch.chief()
    if self.is_chief or chief is None:
      return self.is_chief  # a restarted ps has no heartbeat of the chief yet
    mine = "%s=%s" % (self.cluster.task.name, self.heartbeat.get("process"))
    return (chief.heard is None or mine in chief.heard.split()
            or chief.has_ended or chief.run != self.run_id or chief.age > TIMING.alive_within)

  def _look(self, records: Dict[str, ControlRecord]) -> None:
    current, callback = self.run.record, self._at_loss
    self.resets.look(records)
    self._look_at_sessions()
    if self.is_chief:
      goes_on = bool(self.run_id) and current is not None and not current.ended
      self.watch.look(records, self.run_id, goes_on)
      if self._directory_watch is None:
        self.watch.answer_ended(self.run_id)
      else:
        self._directory_watch.note_beat()
      return
    run = find_run(records, self.record.container)
    if callback is not None and None not in (run, current) and run.id != current.id:
      callback(tf.errors.AbortedError(None, None, "the chief began another run (%s)" % run.id))
    if not self.is_over:
      self.watch.look_at_chief(self.run_id)

  def members(self) -> List[Member]:
    """Returns the members of the job, with those whose heartbeats were lost with a ps."""
    return self.watch.members(self.run_id)

  def had_done_its_part(self, task, member: Optional[Member]) -> bool:
    """Whether a worker had done its part in a run before the run's chief and ps were lost.

    `member` is the worker's last heartbeat, which is not from this run, or None.
    """
    if self._directory is None:
      return False
    if member is None:
      return task.name in self._directory.done
    return member.state == MEMBER_DONE and member.run == self._directory.run_cut_off

  def roll_back(self, step: int) -> int:
    """Notes that the job goes back to a global step; returns the number of lost steps."""
    left_at = -1 if self._directory is None else self._directory.step_left
    return self.watch.roll_back(step, left_at)

  @property
  def stop_reason(self) -> str:
    """Why the evaluator asks all workers to end, or ""; the others read the chief's heartbeat."""
    if self.is_chief:
      return "" if self._directory_watch is None else self._directory_watch.stop_reason
    chief = self.watch.chief()
    return chief.stop if chief is not None and chief.run == self.run_id else ""

  def _lose(self, error: BaseException) -> None:
    if self._at_loss is not None:
      self._at_loss(error)
