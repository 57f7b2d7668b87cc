from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import tensorflow.compat.v1 as tf

import tf1ps
from tests import harness, presence_tasks
from tests.training import local_loop, local_server
from tf1ps.cluster import server as server_lib
from tf1ps.graph import TooLargeError
from tf1ps.session import ending, plain_session, presence, process_end, unplaced
from tf1ps.state import ending as ending_of_ps
from tf1ps.state import heartbeat
from tf1ps.state import run as run_lib


@pytest.fixture
def record(request):
  """The record of a server of this process, for one test: it has no presence before or after."""
  found = local_server.record(request.node.name.replace("_", "-"))
  before = server_lib._records[found.target]
  server_lib._records[found.target] = found
  presence._present.pop(found.target, None)
  with tf.Graph().as_default():
    yield found
  process_end.end_open_sessions(KeyboardInterrupt())
  presence._present.pop(found.target, None)
  server_lib._records[found.target] = before


def run_on(record):
  return run_lib.find_run(local_server.table(record).read(), record.container)


def members(record):
  return {one.index: one for one in heartbeat.members_of(
    local_server.table(record).read(), record.container)}


def test_a_session_shows_the_ps_its_task_and_those_of_the_graph(record):
  with tf.device("/job:worker/task:0"):
    one = tf.constant(1)
  # Workers 1 and 2 of this cluster do not exist: TensorFlow's session would wait for them.
  with plain_session.Session(record.target) as session:
    assert session.run(one) == 1
    assert {device.name.split("/device")[0] for device in session.list_devices()} == {
      "/job:worker/replica:0/task:0"}


@pytest.mark.skipif(tf.__version__.startswith("1."), reason="TensorFlow 1 places it by itself")
def test_variables_without_a_device_lie_on_the_first_task_where_that_is_on(record, monkeypatch):
  for on, device in ((False, ""), (True, "/job:worker/task:0")):
    monkeypatch.setattr(unplaced, "_is_on", on)
    with tf.Graph().as_default():
      session = plain_session.Session(record.target)
      v = tf.get_variable("v", initializer=7, use_resource=True)
      session.run(v.initializer)
      assert v.op.device == device and session.run(v) == 7


def test_a_session_adds_to_counts_under_their_locks(record):
  count = tf.get_variable("count", [], tf.int64, tf.zeros_initializer(), use_resource=False)
  with plain_session.Session(record.target) as session:
    session.run(count.initializer)
    add = tf.assign_add(count, 1)
    assert session.run(add) == 1 and add.op.get_attr("use_locking")


def test_a_session_logs_placements_where_its_server_should(record):
  for config, logs in ((None, False), (tf.ConfigProto(log_device_placement=True), True)):
    of = record._replace(config=config)
    assert plain_session._with_filters(
      None, of, tf.get_default_graph()).log_device_placement == logs


def test_a_session_names_the_tasks_that_do_not_answer(record):
  with tf.device("/job:worker/task:2"):
    tf.constant(1)
  with pytest.raises(tf1ps.Error, match="/job:worker/task:2"):
    plain_session.Session(record.target, start_timeout=0.3)


def test_a_run_for_which_no_message_can_hold_a_value_is_refused(record):
  with plain_session.Session(record.target) as session:
    with tf.device("/job:worker/task:1"):
      table = tf.get_variable("table", [2 ** 29], use_resource=True)
    with tf.device("/job:worker/task:0"):
      mean, other = tf.reduce_mean(table), tf.constant(3)
    for fetches in {"a": [other, mean]}, "Mean:0":
      with pytest.raises(TooLargeError, match="variable table has 2147483648 bytes, and the opera"):
        session.run(fetches)
    with pytest.raises(tf.errors.InvalidArgumentError):  # there is no such task
      session.run(other)


def test_runs_are_counted_and_the_end_releases_the_job(record):
  session = plain_session.Session(record.target)
  number = tf.constant(7)
  for _ in range(3):
    session.run(number)
  plain_session.Session(record.target).run(number)
  harness.wait_until(lambda: 0 in members(record) and members(record)[0].step == 4)
  assert members(record)[0].state == heartbeat.MEMBER_TRAINING and run_on(record) is None
  for index in (1, 2):
    local_server.Worker(record, index).say(state=heartbeat.MEMBER_DONE)
  process_end.end_open_sessions()
  assert run_on(record).ended and not run_on(record).failed
  assert members(record)[0].state == heartbeat.MEMBER_DONE


def test_a_failure_of_another_worker_fails_the_chief(record):
  plain_session.Session(record.target)
  local_server.Worker(record, 1).say(state=heartbeat.MEMBER_DONE)
  local_server.Worker(record, 2).say(state=heartbeat.MEMBER_FAILED, reason="a reason")
  with pytest.raises(ending.JobFailedError, match="/job:worker/task:2 failed: a reason"):
    process_end.end_open_sessions()
  assert run_on(record).failed


def test_an_error_of_the_program_is_reported_and_releases_nothing(record):
  plain_session.Session(record.target)
  process_end.end_open_sessions(ValueError("of the program"))
  assert run_on(record) is None
  assert members(record)[0].reason == "ValueError: of the program"


def test_a_monitored_session_takes_over(record, tmp_path):
  with tf.container(record.container):
    model = local_loop.Model()
  beside = plain_session.Session(record.target)
  for index in (1, 2):
    local_server.Worker(record, index).say(state=heartbeat.MEMBER_DONE)
  with tf1ps.MonitoredTrainingSession(record.target, checkpoint_dir=str(tmp_path)) as session:
    session.run(model.train_op)
    assert beside.run(model.x) == 1.0
    plain_session.Session(record.target)
  assert run_on(record).ended and members(record)[0].step == 1
  process_end.end_open_sessions()


def test_join_takes_over(record, monkeypatch):
  plain_session.Session(record.target)
  monkeypatch.setattr(server_lib, "_end_waiter", lambda *unused: "the job has ended")
  local_server.server().join()
  process_end.end_open_sessions()
  assert run_on(record) is None


@pytest.fixture(scope="module")
def ps_server():
  addresses = harness.addresses(2)
  return tf1ps.Server({"ps": addresses[:1], "worker": addresses[1:]}, "ps", 0)


class Sleeper(object):
  """A ps without `join` and session, in a container of its own; what its process leaves with."""

  def __init__(self, record, left):
    self._record, self.left = record, left
    self.presence = presence.be_present(record)

  def end_run(self, failed=False):
    run_lib.write_run(local_server.table(self._record), self._record.container, run_lib.RunRecord(
      "run", True, True, failed, {}, [], 1))


@pytest.fixture
def sleeper(request, ps_server, monkeypatch, set_timing):
  left = []
  monkeypatch.setattr(presence, "leave_now", lambda *how: left.append(how))
  monkeypatch.setattr(presence, "_present", {})
  set_timing(presence, join_limit=0.0)
  set_timing(ending_of_ps, linger=0.0)
  container = re.sub("[^a-z]", "-", request.node.name)
  found = Sleeper(ps_server.record._replace(container=container), left)
  yield found
  presence.take_over(ps_server.target)
  found.presence._thread.join(harness.LIMIT)


@pytest.mark.parametrize("failed, code, text", [
  (False, 0, "the chief released this task: the job has ended"),
  (True, 1, "the chief released this task: the job has failed")])
def test_a_ps_that_sleeps_leaves_when_the_job_has_ended(sleeper, failed, code, text):
  sleeper.end_run(failed)
  harness.wait_until(lambda: sleeper.left)
  assert sleeper.left[0][0] == code and text in sleeper.left[0][1]


def test_a_ps_without_a_session_ends_with_its_code(sleeper):
  process_end.end_open_sessions()  # it does not wait for the job
  sleeper.end_run()
  sleeper.presence._thread.join(harness.LIMIT)
  assert sleeper.left == []


def test_a_session_without_a_server_of_tf1ps_is_tensorflows():
  with tf.Graph().as_default(), plain_session.Session() as session:
    assert session.run(tf.constant(7)) == 7


def test_a_worker_that_ends_before_the_ps_comes_reports_all_the_same(forks):
  address = harness.addresses(2)
  jobs = {"ps": address[:1], "worker": address[1:]}
  worker = forks.start("worker 0", presence_tasks.train_plainly, jobs, "worker", 0, "nothing")
  worker.wait_for("leaves")
  ps = forks.start("ps 0", presence_tasks.train_plainly, jobs, "ps", 0, "nothing")
  assert [worker.wait(), ps.wait()] == [0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["a done queue", "a worker without a session", "a ps that sleeps"])
def test_a_job_of_plain_sessions_ends(forks, how):
  address = harness.addresses(3)
  jobs = {"ps": address[:1], "worker": address[1:]}
  tasks = [forks.start("%s %d" % (job, index), presence_tasks.train_plainly, jobs, job, index, how)
           for job, index in (("ps", 0), ("worker", 0), ("worker", 1))]
  assert [task.wait() for task in tasks] == [0, 0, 0], [task.output for task in tasks]
  said = {"a done queue": "saved 100.0", "a worker without a session": "saved 50.0"}
  assert said.get(how, "saved ") in tasks[1].output


@pytest.mark.slow
def test_a_ps_that_waits_for_a_worker_that_failed_leaves(forks):
  address = harness.addresses(3)
  jobs = {"ps": address[:1], "worker": address[1:]}
  tasks = [forks.start("%s %d" % (job, index), presence_tasks.train_plainly, jobs, job, index,
                       "a failure")
           for job, index in (("ps", 0), ("worker", 0), ("worker", 1))]
  assert [task.wait() for task in tasks] == [1, 1, 1]
  assert "/job:worker/task:1 failed: ValueError: of the program" in tasks[1].output


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_a_later_run_leaves_the_queue_for_which_the_program_of_a_ps_waits(forks, tmp_path, kind):
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  ps = forks.start("ps 0", presence_tasks.await_queue, jobs, kind, str(tmp_path / "end"))
  ps.wait_for("waits")
  first = forks.start("worker 0", presence_tasks.report_to_queue, jobs, [1])
  ps.wait_for("took 1")
  first.wait_for("stays")
  first.kill()
  # Without a checkpoint directory it cannot know that the state is that of its own run.
  second = forks.start("worker 0 again", presence_tasks.report_to_queue, jobs, [2, 3])
  ps.wait_for("all taken")
  assert second.wait() == 0
  (tmp_path / "end").write_text("")
  assert ps.wait() == 0
  assert "found 0 0" in first.output and "found 0 0" in second.output


_WAITS = """
import sys, time
import tensorflow.compat.v1 as tf
import tf1ps
from tf1ps.session import Session
server = tf1ps.Server({"ps": ["127.0.0.1:1"], "worker": [sys.argv[1]]}, "worker", 0)
with tf.Graph().as_default():
  with tf.device("/job:ps/task:0"):
    tf.train.create_global_step()
  for make in (Session, tf1ps.MonitoredTrainingSession):
    began = time.monotonic()
    try:
      make(server.target)
    except tf1ps.Error as error:
      print(time.monotonic() - began, str(error).replace("\\n", " "))
"""


@pytest.mark.slow
def test_the_environment_bounds_the_wait_for_the_start():
  said = subprocess.run(
    [sys.executable, "-c", _WAITS, *harness.addresses(1)], stdout=subprocess.PIPE, timeout=100,
    env=dict(os.environ, TF1PS_START_TIMEOUT="1.5"), check=True)
  lines = said.stdout.decode().splitlines()
  assert len(lines) == 2
  for line in lines:
    seconds, text = line.split(" ", 1)
    assert float(seconds) >= 1.5  # without the variable 60: longer than the process may take
    assert "/job:ps/task:0" in text
