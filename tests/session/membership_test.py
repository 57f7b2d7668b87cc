from __future__ import annotations

import atexit
import dataclasses
import logging
import os
import re
import signal
import threading
import time
import types

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import cluster_tasks, harness, needs
from tests.survival import matrix_job
from tests.training import local_loop, local_server
from tf1ps.cluster import description as cluster_lib
from tf1ps.cluster import server as server_lib
from tf1ps.compat import own_identity, worker_service
from tf1ps.session import membership as membership_lib
from tf1ps.session import run_records, takeover
from tf1ps.state import containers, control, heartbeat, run, run_status

SIGNATURE = [["w:0", "()", "float32", "", "resource"]]


@pytest.fixture
def make(request):
  """Makes a chief's part; each is as new as one of another process, and ended with the test."""
  made = []

  def one(directory=None, heartbeat_timeout=20.0):
    of = local_server.record(re.sub("[^a-z]", "-", request.node.name), heartbeat_timeout)
    part = membership_lib.Membership(of, directory and str(directory))
    made.append(part)
    return part

  yield one
  for part in made:
    part.stop()


def runs(part):
  """What the records say of the run, whatever the part believes."""
  return run_records.RunRecords(part.record).runs()


def make_worker(chief):
  """Worker 1's part in the job of a chief, with heartbeats through the chief's server."""
  of = chief.record._replace(cluster=dataclasses.replace(chief.cluster, task_index=1))
  part = membership_lib.Membership(of)
  part.heartbeat = part.watch.heartbeat = heartbeat.Heartbeat(
    local_server.table(chief.record), of.cluster.task, "worker", of.container, 20.0)
  return part


def is_done(chief):
  """Whether the records say that worker 1 has done its part; the chief does not read them."""
  found = heartbeat.members_of(local_server.table(chief.record).read(), chief.record.container)
  return [m.state for m in found if m.index == 1] == [heartbeat.MEMBER_DONE]


def forget_all(chief):
  """Leaves the control records as a new process of the task that keeps them finds them."""
  worker_service.cleanup_all(
    chief.cluster.control_task.address, [containers.CONTROL], 10.0)


def initialise(part, signature=SIGNATURE):
  part.run.begin_initialisation()
  part.run.mark_initialised(signature)


def test_a_chief_that_finds_nothing_begins_a_run(make, tmp_path):
  part = make(tmp_path)
  assert not part.run.adopt(SIGNATURE) and part.run_id == ""
  part.run.begin_initialisation()
  (found,) = runs(part)
  assert (found.id, found.initialised, found.ended, found.writes) == (part.run_id, False, False, 1)
  assert found.jobs == part.cluster.to_json() and len(found.id) == 16
  part.run.mark_initialised(SIGNATURE)
  (found,) = runs(part)
  assert (found.initialised, found.signature) == (True, SIGNATURE)
  assert run.RunFile(str(tmp_path)).read()[:2] == (part.run_id, run_status.RUN_RUNNING)


def test_its_run_is_known_by_the_file_in_the_directory(make, tmp_path):
  first = make(tmp_path)
  initialise(first)
  again = make(tmp_path)
  assert again.run.adopt(SIGNATURE) and again.run_id == first.run_id


@pytest.mark.parametrize(
  "case", ["other directory", "no file", "another graph", "half done", "ended", "ended unsaid"])
def test_what_is_not_this_runs_live_state(make, tmp_path, case):
  first = make(tmp_path / "one")
  first.run.begin_initialisation()
  if case != "half done":
    first.run.mark_initialised(SIGNATURE)
  if "ended" in case:
    first.release()
  if case == "ended unsaid":
    run.RunFile(str(tmp_path / "one")).write(first.run_id, run_status.RUN_RUNNING, 0)
  if case == "no file":
    (tmp_path / "one" / run.RunFile.NAME).unlink()
  again = make(tmp_path / ("two" if case == "other directory" else "one"))
  assert not again.run.adopt([] if case == "another graph" else SIGNATURE)
  # Of a run that was to be initialised, or restored, the id goes on; the state does not.
  assert again.run_id == (first.run_id if case == "half done" else "")
  again.run.begin_initialisation()
  (found,) = runs(again)
  assert not found.initialised and found.writes == (2 if case == "half done" else 1)


def test_without_a_directory_only_what_another_member_keeps_alive(make):
  first = make()
  initialise(first)
  assert not make().run.adopt(SIGNATURE)
  worker = local_server.Worker(first.record, 1)
  worker.say(run=first.run_id, state=heartbeat.MEMBER_TRAINING)
  again = make()
  assert again.run.adopt(SIGNATURE) and again.run_id == first.run_id
  worker.say(state=heartbeat.MEMBER_DONE)
  assert not make().run.adopt(SIGNATURE)


class Living(object):
  """Another run on the ps, whose worker 1 sends a heartbeat whenever its caller looks."""

  def __init__(self, make, directory):
    self.chief = make(directory)
    initialise(self.chief)
    self._worker = local_server.Worker(self.chief.record, 1)
    self.beat()

  def beat(self):
    self._worker.say(run=self.chief.run_id, state=heartbeat.MEMBER_TRAINING)


@pytest.mark.parametrize("case", [
  "other directory", "no file", "damaged file", "another run's file", "begun and killed"])
def test_a_chief_that_does_not_know_its_run_any_more_takes_over_what_lives(make, tmp_path, case):
  living = Living(make, tmp_path / "one")
  (tmp_path / "one" / "checkpoint").write_text("damaged, as the file beside it may be")
  file = tmp_path / "one" / run.RunFile.NAME
  if case == "no file":
    file.unlink()
  if case == "damaged file":
    file.write_text("{")
  if case == "another run's file":  # an older one, from a copy of the directory
    run.RunFile(str(tmp_path / "one")).write("older", run.RUN_ENDED, 7)
  if case == "begun and killed":  # a chief that was killed before it looked at the ps
    run.RunFile(str(tmp_path / "one")).write("new", run_status.RUN_RUNNING, -1)
  directory = tmp_path / ("two" if case == "other directory" else "one")
  again = make(directory)
  assert again.run.adopt(SIGNATURE, living.beat) and again.run_id == living.chief.run_id
  again.run.mark_initialised(SIGNATURE)
  assert run.RunFile(str(directory)).read()[:2] == (living.chief.run_id, run_status.RUN_RUNNING)


@pytest.mark.parametrize("case, reason", [
  ("graph", "its graph has other variables"),
  ("run", "its directory has run theirs"),
  ("checkpoints", "its directory has checkpoints of another run"),
  ("own", "it is the chief of run mine")])
def test_a_chief_of_another_run_is_refused_and_clears_nothing(make, tmp_path, case, reason):
  living, two = Living(make, tmp_path / "one"), tmp_path / "two"
  two.mkdir()
  if case == "run":
    run.RunFile(str(two)).write("theirs", run_status.RUN_ENDED, 7)
    run.RunFile(str(two)).write("theirs", run_status.RUN_FAILED, 7, may_resume=True)
  if case == "checkpoints":
    with tf.Graph().as_default(), tf.Session() as session:
      step = tf.train.get_or_create_global_step()
      session.run(step.initializer)
      tf.train.Saver().save(session, str(two / "model.ckpt"), step)
  again = make(two)
  again.run.id = "mine" if case == "own" else ""
  with pytest.raises(takeover.LivingRunError, match=(
      r"^/job:worker/task:1 \(process %d on .*\) trains run %s on the ps, whose chief on .* saves "
      r"into %s/one. The chief here, on .* with the checkpoint directory %s/two, cannot go on with "
      r"that run: %s\. End" % (
        os.getpid(), living.chief.run_id, tmp_path, tmp_path, reason))):
    again.run.adopt([] if case == "graph" else SIGNATURE, living.beat)
  assert runs(again)[0].id == living.chief.run_id


def test_a_chief_that_restores_its_run_needs_no_room_on_the_disk(make, tmp_path):
  try:
    disk = matrix_job.Disk(tmp_path)
  except matrix_job.NotPermitted as error:
    needs.skip("mounts", error)
  try:
    part = make(tmp_path)
    part.start()
    initialise(part)
    part.heartbeat.set(global_step=7)
    disk.fill()
    initialise(part)
    assert run.RunFile(disk.folder).read()[:3] == (part.run_id, run_status.RUN_RUNNING, 7)
    part.stop()
  finally:
    disk.close()


def test_another_disk_at_the_same_path_is_another_directory(make, tmp_path):
  """Containers with one host name may have a disk each."""
  (tmp_path / "one").mkdir()
  living = Living(make, tmp_path / "one")
  (tmp_path / "one").rename(tmp_path / "away")
  (tmp_path / "one").mkdir()
  run.RunFile(str(tmp_path / "one")).write("theirs", run_status.RUN_ENDED, 7)
  with pytest.raises(takeover.LivingRunError, match="its directory has run theirs"):
    make(tmp_path / "one").run.adopt(SIGNATURE, living.beat)
  (tmp_path / "one" / run.RunFile.NAME).unlink()
  assert make(tmp_path / "one").run.adopt(SIGNATURE, living.beat)


def test_members_that_have_fallen_silent_keep_no_run(make, tmp_path):
  Living(make, tmp_path / "one")
  again = make(tmp_path / "two", heartbeat_timeout=0.5)
  assert not again.run.adopt(SIGNATURE) and again.run_id == ""


def test_another_chief_of_the_same_name_keeps_its_run(make, tmp_path):
  """Two jobs with one container on a persistent ps: each overwrites the other's heartbeats."""
  first = make(tmp_path / "one")
  initialise(first)
  first.heartbeat.set(process="another")
  first.heartbeat.beat()
  again = make(tmp_path / "two")
  with pytest.raises(takeover.LivingRunError, match="^/job:worker/task:0 .* other variables"):
    again.run.adopt([], first.heartbeat.beat)


@pytest.mark.parametrize("first_to_beat", ["chief", "worker"])
def test_a_run_whose_chief_lives_is_not_taken_over(make, tmp_path, set_timing, first_to_beat):
  set_timing(takeover, heartbeat_interval=20.0, fast_poll_interval=0.01)  # until it is seen
  living = Living(make, tmp_path / "one")
  living.chief.heartbeat.set(process="another")
  living.chief.heartbeat.beat()
  looks = []

  def beat():
    looks.append(1)
    if first_to_beat == "chief" or len(looks) > 3:
      living.chief.heartbeat.beat()
    living.beat()

  again = make(tmp_path / "two")
  with pytest.raises(takeover.LivingRunError, match=(
      "^/job:worker/task:0 .* cannot go on with that run: the run has a chief that lives. End")):
    again.run.adopt(SIGNATURE, beat)


@pytest.mark.parametrize("error", [
  tf.errors.InternalError, tf.errors.FailedPreconditionError, tf.errors.NotFoundError])
def test_an_error_of_a_run_whose_state_was_cleared_is_named(make, error):
  worker = make()
  worker.is_chief = False  # it plays a worker here
  initialise(make())
  worker.join(*runs(worker))
  found = error(None, None, "Invalid variable reference.")
  assert worker.explain(found) is found
  other = make()
  initialise(other)
  meaning = worker.explain(found)
  assert isinstance(meaning, tf.errors.AbortedError) and other.run_id in meaning.message
  mistake = ValueError("a mistake of the program")
  assert worker.explain(mistake) is mistake


def test_who_joins_a_run_is_heard_at_once(make):
  worker = make()
  worker.is_chief = False  # it plays a worker here
  worker.join(run.RunRecord("one", True, False, False, {}, [], 1))
  later = make()  # another process of this task, which reads what the one before it said
  later.heartbeat.beat()
  assert later.heartbeat.previous.run == "one"


def test_a_chief_that_cannot_hear_the_others_takes_nobody_for_dead(make, monkeypatch):
  first = make()
  initialise(first)
  again = make()

  def fail():
    raise control.ControlError("no answer")

  monkeypatch.setattr(again.heartbeat, "beat", fail)
  with pytest.raises(control.ControlError):
    again.run.adopt(SIGNATURE)


class Left:
  """A variable and a queue in a member's container, as a task without tf1ps leaves them there."""

  def __init__(self, part):
    self._config = tf.ConfigProto(device_filters=[part.cluster.task.name])
    self._target = part.record.target
    with tf.Graph().as_default() as self._graph, tf.container(part.record.container):
      variable = tf.get_variable("left", initializer=1.0, use_resource=True)
      queue = tf.FIFOQueue(10, tf.float32, shared_name="left")
      self._leave = [variable.initializer, queue.enqueue(1.0)]
      self._found = [tf.is_variable_initialized(variable), queue.size()]

  def leave(self):
    self._run(self._leave)

  def found(self):
    """Whether the variable is there, and the number of elements in the queue."""
    return [int(value) for value in self._run(self._found)]

  def _run(self, fetches):
    with tf.Session(self._target, self._graph, self._config) as session:
      return session.run(fetches)


def test_what_another_run_left_is_cleared(make):
  initialise(make())
  part = make()
  left = Left(part)
  left.leave()
  assert not part.run.adopt([]) and left.found() == [1, 1]
  part.run.begin_initialisation()
  assert left.found() == [0, 0]
  left.leave()
  part.run.begin_initialisation()  # of the same run: a ps that kept its part keeps its queues, too
  assert left.found() == [1, 1]


def test_a_ps_may_wait_for_a_queue_where_its_program_has_sessions(make, monkeypatch):
  part = make()
  records, (task,) = run_records.RunRecords(part.record), part.state_tasks
  monkeypatch.setattr(run_records, "record_of_task", lambda task: None)  # as in another process
  for has_sessions in (True, False):
    local_server.table(part.record).put({
      control.CLUSTER_RECORD: part.cluster.to_json(),
      control.PROGRAM_RECORD: {"has_sessions": has_sessions}})
    assert records.may_wait_for_queues(task) == has_sessions


def test_where_no_run_has_been_nothing_is_cleared(make):
  part = make()
  left = Left(part)
  left.leave()  # such as a queue that the program of a ps waits for
  assert not part.run.adopt(SIGNATURE)
  initialise(part)
  assert left.found() == [1, 1]


def test_the_release_is_the_end(make, tmp_path):
  part = make(tmp_path)
  part.release()  # of nothing
  initialise(part)
  part.heartbeat.set(global_step=7)
  part.release()
  assert runs(part)[0][1:4] == (True, True, False)
  assert run.RunFile(str(tmp_path)).read()[:3] == (part.run_id, run_status.RUN_ENDED, 7)
  part.heartbeat.beat()  # a late one changes nothing
  assert run.RunFile(str(tmp_path)).read().state == run_status.RUN_ENDED


def test_a_failure_is_told(make, tmp_path):
  part = make(tmp_path)
  initialise(part)
  part.release(failed=True, reason="NaN")
  assert runs(part)[0][1:4] == (True, True, True)
  part.report(heartbeat.MEMBER_FAILED, "later")
  found = run.RunFile(str(tmp_path)).read()
  assert (found.state, found.reason, found.may_resume) == (run_status.RUN_FAILED, "NaN", False)


def test_a_chief_that_failed_says_why_and_goes_on_when_it_is_back(make, tmp_path):
  first = make(tmp_path)
  first.start()
  initialise(first)
  first.heartbeat.set(global_step=7)
  first.report(heartbeat.MEMBER_FAILED, "ended by signal 15")
  first.stop()
  found = run.RunFile(str(tmp_path)).read()
  assert (found.state, found.global_step) == (run_status.RUN_FAILED, 7)
  assert (found.reason, found.may_resume) == ("ended by signal 15", True)
  again = make(tmp_path)
  assert again.run.adopt(SIGNATURE) and again.run_id == first.run_id
  assert run.RunFile(str(tmp_path)).read().state == run_status.RUN_RUNNING


def test_the_heartbeat_tells_the_directory_that_the_run_lives(make, tmp_path):
  part = make(tmp_path, heartbeat_timeout=0.6)  # a sixth of it at the most
  initialise(part)
  part.heartbeat.set(global_step=5)
  part.start()
  harness.wait_until(lambda: run.RunFile(str(tmp_path)).read().global_step == 5)


def test_a_disk_that_does_not_answer_stops_no_heartbeat(make, tmp_path, caplog, set_timing):
  set_timing(membership_lib, report_limit=0.5)
  part = make(tmp_path, heartbeat_timeout=0.6)
  assert not part.run.adopt(SIGNATURE)
  initialise(part)
  path = run.RunFile(str(tmp_path)).path
  os.remove(path)
  os.mkfifo(path)  # who opens it waits for a writer
  part.start()
  table = local_server.table(part.record)
  try:
    for step in (5, 6):
      part.heartbeat.set(global_step=step)
      harness.wait_until(lambda step=step: [step] == [
        m.global_step for m in heartbeat.members_of(table.read(), part.record.container)])
    assert part.report(heartbeat.MEMBER_FAILED, "a reason", limit=harness.LIMIT)
    assert "writing the run's status file" in _warnings(caplog)[0]
  finally:
    os.close(os.open(path, os.O_RDWR))  # the disk is back
  harness.wait_until(lambda: os.path.isfile(path) and run.RunFile(str(tmp_path)).read() is not None)


def test_its_own_end_is_reported(make):
  part = make()
  assert part.report(heartbeat.MEMBER_FAILED, "a reason", limit=harness.LIMIT)
  member = part.watch.chief()
  assert (member.state, member.reason, member.role) == (
    heartbeat.MEMBER_FAILED,
    "a reason",
    "chief",
  )


def test_a_report_that_a_ps_at_rest_does_not_take_is_warned_of_once(start, caplog):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  ps = start("ps", cluster_tasks.serve, jobs, "ps", 0)
  ps.wait_for("up")
  worker = cluster_lib.Cluster({job: dict(enumerate(jobs[job])) for job in jobs}, "worker", 0)
  # Not proven: its records travel through the ps, and this process needs no server.
  part = membership_lib.Membership(server_lib.ServerRecord(
    "", worker, "", None, False, None, 20.0, is_proven=False))
  part.prove()
  harness.wait_until(lambda: part.heartbeat.silence is not None)
  ps.signal(signal.SIGSTOP)
  assert not part.report(heartbeat.MEMBER_FAILED, "ended by signal 15", limit=0.1)
  # The call that is left behind ends later, and has nothing more to say.
  harness.wait_until(lambda: not any(
    "reporting this task's end" in thread.name for thread in threading.enumerate()))
  part.stop()
  said, = _warnings(caplog)
  assert said.startswith(
    "the other tasks could not be notified that this task is failed (ended by signal 15): ")


@pytest.mark.parametrize("state, run_of, examples", [
  (heartbeat.MEMBER_TRAINING, "same", 96), (heartbeat.MEMBER_DONE, "same", 96),
  (heartbeat.MEMBER_TRAINING, "other", 0)])
def test_what_an_earlier_process_trained_on_in_this_run(make, state, run_of, examples):
  first = make()
  initialise(first)
  first.heartbeat.set(examples=96, state=state)
  if run_of == "other":
    first.heartbeat.set(run="another")
  first.heartbeat.beat()
  again = make()
  again.heartbeat.beat()
  again.run.id = first.run_id
  assert again.examples_before == examples


def test_a_holder_that_was_told_another_cluster(make):
  part = make()
  part.compare_clusters()
  other = dict(part.cluster.to_json()["worker"], **{"2": "elsewhere:1"})
  local_server.table(part.record).put({control.CLUSTER_RECORD: {"worker": other}})
  try:
    with pytest.raises(membership_lib.ClusterMismatchError, match=(
        r"/job:worker/task:0 at .* was started with a different cluster than /job:worker/task:0: "
        r"worker 2 is .* here and elsewhere:1 there")):
      part.compare_clusters()
  finally:
    local_server.table(part.record).put({control.CLUSTER_RECORD: part.cluster.to_json()})


def test_a_worker_is_told_of_another_run(make):
  part = make()
  part.is_chief = False  # it plays a worker here
  told = []
  part.at_loss(lambda error: told.append(error.message))
  part.heartbeat.beat()
  part.join(run.RunRecord("one", True, False, False, {}, [], 1))
  for run_id, writes in (("one", 1), ("one", 2), ("two", 1)):
    run_records.RunRecords(part.record).write(
      run.RunRecord(run_id, True, False, False, {}, [], writes))
    part.heartbeat.beat()
  assert told == ["the chief began another run (two)"]


def test_a_worker_says_once_that_the_chief_has_left(make, caplog):
  part = make()
  part.is_chief = False  # it plays a worker here, and sends the chief's heartbeats
  part.join(run.RunRecord("one", True, False, False, {}, [], 1))
  part.heartbeat.beat()
  assert _warnings(caplog) == []
  part.heartbeat.set(state=heartbeat.MEMBER_FAILED, reason="ended by signal 15")
  for _ in range(2):
    part.heartbeat.beat()
  assert _warnings(caplog) == [
    "the chief %s failed: ended by signal 15. The others train on, and no checkpoint is saved "
    "until it is back" % part.cluster.chief.name]


def test_the_chief_says_once_that_a_worker_is_lost_and_once_that_it_is_back(make, caplog):
  chief = make(heartbeat_timeout=0.5)
  initialise(chief)
  worker = local_server.Worker(chief.record, 1)
  worker.say(run=chief.run_id, state="training", global_step=7)

  def wait_for(count, each_round=lambda: None):
    def is_there():
      each_round()
      chief.heartbeat.beat()
      return len(_warnings(caplog)) == count
    harness.wait_until(is_there, what="message %d" % count)

  wait_for(1)
  assert re.match(
    r"/job:worker/task:1 is lost: silent for \d+ s, since \d\d:\d\d:\d\d; process %d on \S+ was at "
    r"global step 7\. The others go on as long as their updates do not need it; start it again, or "
    r"the job fails at its end$" % os.getpid(), _warnings(caplog)[0])
  wait_for(2, lambda: worker.say(global_step=8))  # on a busy machine one alone may be old at once
  assert re.match(r"/job:worker/task:1 is back after \d+ s: process %d on " % os.getpid(),
                  _warnings(caplog)[1])
  wait_for(3)
  worker.say(state="failed", reason="again")
  chief.heartbeat.beat()
  assert len(_warnings(caplog)) == 3 and "is lost" in _warnings(caplog)[2]


def _warnings(caplog):
  return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


RUN = run.RunRecord(id="one", initialised=True, ended=False, failed=False, jobs={},
                    signature=[["w:0", "()", "float32", "", "ref"]], writes=1)


def test_a_run_is_read_as_it_was_written():
  records = run_records.RunRecords(local_server.record("run_records.a"))
  assert [task.name for task in records.state_tasks] == ["/job:worker/task:0"]
  assert records.runs() == [None]
  records.write(RUN)
  assert records.runs() == [RUN]
  records.write_where_possible(RUN._replace(ended=True))
  assert records.runs() == [RUN._replace(ended=True)]
  assert run_records.RunRecords(local_server.record("run_records.b")).runs() == [None]
  records.close()


def test_what_a_holder_was_told_of_the_cluster():
  of = local_server.record("run_records.c")
  local_server.table(of).put({control.CLUSTER_RECORD: {"worker": {"0": "a:1"}}})
  assert run_records.RunRecords(of).clusters() == {of.cluster.task: {"worker": {"0": "a:1"}}}
  local_server.table(of).put({control.CLUSTER_RECORD: of.cluster.to_json()})


_servers = []  # of this process, which cannot stop them
atexit.register(_servers.clear)  # 1.15's destructor needs what the end of Python takes away


def test_a_ps_of_this_process_that_never_joins_is_not_waited_for(monkeypatch):
  def sleep(seconds):
    raise AssertionError("waited for a description that only join writes")

  ps, worker = harness.addresses(2)
  spec = {"ps": [ps], "worker": [worker]}
  _servers.extend(tf1ps.Server(spec, job, 0) for job in spec)
  monkeypatch.setattr(run_records, "time", types.SimpleNamespace(
    monotonic=time.monotonic, sleep=sleep))
  records = run_records.RunRecords(_servers[1].record)
  assert records.clusters() == {
    _servers[0].cluster.task: {"ps": {"0": ps}, "worker": {"0": worker}}}
  records.close()


# Two processes of one task, with an address that every machine has.


def test_a_process_whose_task_another_one_is_stays_silent(make, set_timing):
  first, second = make(), make()
  first.heartbeat.set(run="r")
  first.start()
  first.heartbeat.beat()  # the first one of its thread may not have arrived yet
  second = membership_lib.Membership(first.record._replace(is_proven=False))
  second.start()
  with pytest.raises(membership_lib.TaskHeldError, match="task:0 is already process .*; this p"):
    second.check_not_held()
  assert not second.report(heartbeat.MEMBER_FAILED, "refused")
  assert second.heartbeat.silence is None  # it has sent nothing
  first.stop()


@pytest.fixture
def unproven(request):
  """The record of a process of which it is not sure that the others reach it at its address."""
  found = local_server.record(re.sub("[^a-z]", "-", request.node.name), 20.0)
  before = server_lib._records[found.target]
  server_lib._records[found.target] = found = found._replace(is_proven=False)
  with tf.Graph().as_default(), tf.container(found.container):
    yield found
  server_lib._records[found.target] = before


def test_a_session_is_refused_while_another_process_is_its_task(make, unproven):
  first = make()
  first.start()
  harness.wait_until(lambda: first.heartbeat.silence is not None)
  model = local_loop.Model()
  with pytest.raises(membership_lib.TaskHeldError, match="task:0 is already process .*; this p"):
    with tf1ps.MonitoredTrainingSession(unproven.target) as session:
      session.run(model.train_op)
  assert runs(first) == [None]  # the first one's state is as it was


@pytest.mark.slow
def test_a_session_takes_a_free_task_and_then_sends_heartbeats(make, unproven):
  model = local_loop.Model()
  with tf1ps.MonitoredTrainingSession(unproven.target) as session:
    session.run(model.train_op)
    harness.wait_until(lambda: heartbeat.members_of(
      local_server.table(unproven).read(), unproven.container))
    for index in (1, 2):
      local_server.Worker(unproven, index).say(state=heartbeat.MEMBER_DONE)
  member = heartbeat.members_of(local_server.table(unproven).read(), unproven.container)[0]
  assert (member.index, member.state) == (0, heartbeat.MEMBER_DONE)


@pytest.mark.parametrize("left", ["nothing", "the end", "a last heartbeat"])
def test_a_process_takes_the_task_of_one_that_is_gone(make, set_timing, left):
  set_timing(membership_lib, alive_within=0.5)
  first = make()
  if left != "nothing":
    first.heartbeat.beat()
  if left == "the end":
    first.report(heartbeat.MEMBER_DONE, "done")
  second = membership_lib.Membership(first.record._replace(is_proven=False))
  second.check_not_held()
  second.prove()
  harness.wait_until(lambda: second.heartbeat.silence is not None)
  second.stop()


def test_the_steps_that_a_ps_takes_along_are_counted_once(make):
  chief = make()
  initialise(chief)
  chief.heartbeat.set(global_step=50)
  chief.heartbeat.beat()
  assert chief.roll_back(20) == 30
  chief.heartbeat.beat()  # it says 50 until it has a new session
  assert chief.roll_back(20) == 0
  chief.heartbeat.set(global_step=25)
  chief.heartbeat.beat()
  assert chief.roll_back(20) == 5 and chief.watch.rolled_back == 35


def test_the_steps_of_a_run_that_was_cut_off_count(make, tmp_path):
  first = make(tmp_path)
  initialise(first)
  run.RunFile(str(tmp_path)).write(first.run_id, run_status.RUN_RUNNING, 40)
  again = make(tmp_path)
  again.start()
  assert again.roll_back(30) == 10
  first.release()
  after_the_end = make(tmp_path)
  after_the_end.start()
  assert after_the_end.roll_back(30) == 0


def test_a_session_that_one_task_loses_ends_those_of_the_others(make):
  chief, ended = make(), []
  initialise(chief)
  chief.begin_session()
  chief.at_loss(ended.append)
  worker = local_server.Worker(chief.record, 1)
  for run_id, session in ((chief.run_id, 1), ("another", -1), (chief.run_id, -2)):
    worker.say(run=run_id, session=session)
    chief.heartbeat.beat()
  assert not ended
  worker.say(session=-1)
  chief.heartbeat.beat()
  assert isinstance(ended[0], tf.errors.AbortedError)
  assert ended[0].message == "/job:worker/task:1 begins a new session: this task begins one, too"


def test_behind_its_last_step_no_other_task_ends_its_session(make):
  chief, ended = make(), []
  initialise(chief)
  chief.begin_session()
  chief.at_loss(ended.append)
  chief.is_over = True
  local_server.Worker(chief.record, 1).say(run=chief.run_id, session=-1)
  chief.heartbeat.beat()
  chief.unless_over(lambda: ended.append("gone"))
  assert not ended
  chief.is_over = False
  chief.unless_over(lambda: ended.append("gone"))
  assert ended == ["gone"]


def test_a_worker_that_has_lost_its_session_waits_for_the_next_restore(make):
  chief, ended = make(), []
  initialise(chief)
  chief.begin_session()
  chief.heartbeat.beat()
  worker = make_worker(chief)
  worker._records = chief._records  # which its server, that of the chief, can read
  worker.at_loss(ended.append)

  def look():
    worker.heartbeat.beat()
    worker._look_at_sessions()

  try:
    worker.join(worker.find_run())
    assert worker.find_run().writes == 1  # a try that has failed before its session began
    worker.begin_session()
    look()
    assert not ended
    worker.end_session()
    assert worker.find_run() is None
    initialise(chief)
    worker.join(worker.find_run())
    worker.begin_session()
    look()
    assert not ended
    chief.begin_session()
    chief.end_session()
    look()
    assert [error.message for error in ended] == [
      "/job:worker/task:0 begins a new session: this task begins one, too"]
    initialise(chief)
    chief.begin_session()
    chief.heartbeat.beat()
    look()
    assert len(ended) == 2
  finally:
    worker.stop()


def test_a_report_that_is_lost_with_a_ps_still_counts(make):
  chief = make()
  initialise(chief)
  worker = local_server.Worker(chief.record, 1)
  worker.say(run=chief.run_id, state=heartbeat.MEMBER_DONE)
  chief.heartbeat.beat()
  forget_all(chief)
  chief.heartbeat.beat()
  assert not [m for m in chief.heartbeat.members() if m.index == 1]
  assert [m.state for m in chief.members() if m.index == 1] == [heartbeat.MEMBER_DONE]
  worker.say(run=chief.run_id, state=heartbeat.MEMBER_TRAINING)  # it was started again
  chief.heartbeat.beat()
  assert [m.state for m in chief.members() if m.index == 1] == [heartbeat.MEMBER_TRAINING]


def test_a_run_goes_on_when_all_its_ps_are_lost(make):
  chief = make()
  initialise(chief)
  before = chief.run_id
  forget_all(chief)
  assert not chief.run.adopt(SIGNATURE) and chief.run_id == before
  assert chief.run.lost_part == []  # no part is whole
  chief.run.begin_initialisation()
  (found,) = runs(chief)
  assert (found.id, found.initialised, found.writes) == (before, False, 2)
  forget_all(chief)
  run.write_run(local_server.table(chief.record), chief.record.container,
                found._replace(id="another"))
  assert not chief.run.adopt(SIGNATURE) and chief.run_id == ""


def test_a_worker_whose_heartbeat_is_lost_with_a_ps_is_silent(make):
  chief = make()
  initialise(chief)
  local_server.Worker(chief.record, 1).say(run=chief.run_id, state=heartbeat.MEMBER_TRAINING)
  chief.heartbeat.beat()
  (before,) = [m for m in chief.members() if m.index == 1]
  forget_all(chief)
  chief.heartbeat.beat()
  (after,) = [m for m in chief.members() if m.index == 1]
  assert after.age > before.age and after.state == heartbeat.MEMBER_TRAINING


def test_a_worker_repeats_its_report_until_the_chief_has_read_it(make, set_timing):
  set_timing(heartbeat, heard_limit=harness.LIMIT)
  set_timing(membership_lib, alive_within=harness.LIMIT)
  chief = make()
  initialise(chief)
  chief.heartbeat.beat()
  worker = make_worker(chief)
  worker.join(*runs(chief))
  report = threading.Thread(target=worker.report, args=(heartbeat.MEMBER_DONE, ""))
  report.start()
  harness.wait_until(lambda: is_done(chief), what="a report")
  forget_all(chief)  # before the chief has read it
  harness.wait_until(lambda: is_done(chief), what="the report again")
  assert report.is_alive()
  chief.heartbeat.beat()
  assert chief.heartbeat.get("heard") == "/job:worker/task:1=" + own_identity()
  report.join(harness.LIMIT)
  assert not report.is_alive()
  forget_all(chief)
  chief.heartbeat.beat()
  assert [m.state for m in chief.members() if m.index == 1] == [heartbeat.MEMBER_DONE]
  worker.stop()


@pytest.mark.parametrize("case", ["ended", "silent", "another run", "an older release", "deaf"])
def test_no_worker_waits_for_a_chief_that_will_not_read_its_report(make, monkeypatch, case):
  limit = 0.5 if case == "deaf" else 600.0
  monkeypatch.setattr(
    heartbeat, "TIMING", heartbeat.TIMING._replace(heard_limit=limit))
  if case == "silent":
    monkeypatch.setattr(
      membership_lib, "TIMING", membership_lib.TIMING._replace(alive_within=0.3))
  chief = make()
  initialise(chief)
  worker = make_worker(chief)
  worker.join(*runs(chief))
  chief.heartbeat.set(**{
    "ended": dict(state=heartbeat.MEMBER_FAILED), "another run": dict(run="another"),
    "an older release": dict(heard=None)}.get(case, {}))
  if case == "an older release":
    chief.heartbeat._on_records = None
  chief.heartbeat.beat()
  assert worker.report(heartbeat.MEMBER_DONE, "")
  assert is_done(chief)
  worker.stop()


def test_a_worker_does_not_use_a_run_that_is_restored_since_it_joined(make):
  chief, worker = make(), make()
  initialise(chief)
  worker.is_chief = False  # it plays a worker here
  worker.join(*runs(chief))
  worker.run.check_same()
  chief.release()
  worker.run.check_same()  # what runs at the end of the job may end
  chief.run.begin_initialisation()
  with pytest.raises(tf.errors.AbortedError, match="the chief restores the run"):
    worker.run.check_same()
  chief.run.mark_initialised(SIGNATURE)
  with pytest.raises(tf.errors.AbortedError, match="or has restored it"):
    worker.run.check_same()
