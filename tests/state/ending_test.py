from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time

import pytest

import tf1ps
from tests import clock_tasks, cluster_tasks, harness, server_tasks
from tf1ps.cluster import probe
from tf1ps.cluster.description import Task
from tf1ps.compat.timing import TIMING, Timing
from tf1ps.state import control, ending, heartbeat, run

PS_0 = "/job:ps/task:0"
LONG = clock_tasks.LIMIT  # a limit that is over when the test has the clock moved, and not before
RUN = run.RunRecord(id="r", initialised=True, ended=False, failed=False, jobs={}, signature=[],
                    writes=1)


lists_connections = pytest.mark.skipif(
  not os.path.exists("/proc/self/net/tcp"), reason="it lists connections")


class Job:
  """A job of two ps and two workers: its servers are processes, the rest is done from here."""

  def __init__(self, start):
    self._start = start
    self._beats = []
    self.jobs = {"ps": harness.addresses(2), "worker": harness.addresses(2)}
    self.ps = [Task("ps", i, address) for i, address in enumerate(self.jobs["ps"])]

  def serve(self, job="ps", index=0, linger=0.0, client_works=TIMING.client_works, **options):
    """Starts a server of ours that joins."""
    task = self._start(
        "%s %d" % (job, index), clock_tasks.join, self.jobs, job, index, options, linger,
        client_works)
    task.wait_for("joins")
    return task

  def _table(self, index=0):
    address = "grpc://" + self.ps[index].address
    return control.ControlTable(address, self.ps[index], self.ps[index], harness.LIMIT)

  def records(self):
    """The records that ps 0 keeps."""
    table = self._table()
    records = table.read()
    table.close()
    return records

  def mark_run(self, index=0, container="", **fields):
    """Writes the run onto a ps, as the chief does."""
    table = self._table(index)
    run.write_run(table, container, RUN._replace(**fields))
    table.close()

  def worker(self, index, heartbeat_timeout, role="worker"):
    """A worker's heartbeat, which goes on until it is stopped."""
    beat = heartbeat.Heartbeat(
        self._table(), Task("worker", index, "a:1"), role, "", heartbeat_timeout)
    beat.beat()
    beat.start()
    self._beats.append(beat)
    return beat

  def report(self, index, state, reason="", role="worker"):
    """A worker that reports its end and leaves."""
    beat = heartbeat.Heartbeat(self._table(), Task("worker", index, "a:1"), role, "", 30.0)
    beat.report(state, reason)
    beat.stop()

  def close(self):
    for beat in self._beats:  # side by side, as each waits for what a dead ps does not answer
      threading.Thread(target=beat.stop, daemon=True).start()


@pytest.fixture
def job(start, set_timing):
  set_timing(control, probe_limit=harness.LIMIT)
  job = Job(start)
  yield job
  job.close()


def let_pass(seconds):
  """Waits for the time alone: what is tested is that nothing comes of it."""
  began = time.monotonic()
  harness.wait_until(lambda: time.monotonic() - began > seconds)


def test_a_ps_that_is_released_lingers_and_leaves(job):
  assert Timing().linger == 1.5
  ps = job.serve(linger=1.0)
  job.mark_run()
  began = time.monotonic()
  job.mark_run(ended=True)
  assert ps.wait() == 0
  assert time.monotonic() - began >= 1.0
  assert ps.last_line == "ended: the chief released this task: the job has ended"


def test_nobodys_last_call_breaks_while_a_released_ps_lingers(job):
  job.serve(linger=LONG)
  job.mark_run()
  job.mark_run(ended=True)
  let_pass(0.6)  # two looks
  job.report(0, heartbeat.MEMBER_DONE)
  assert probe.probe_task(job.ps[0], harness.LIMIT).is_up


@pytest.mark.slow
def test_a_released_ps_sends_no_heartbeat_to_one_that_may_leave_before_it(job):
  job.serve()
  other = job.serve(index=1, linger=LONG)

  def age():
    return {m.name: m.age for m in heartbeat.members_of(job.records(), None)}.get("/job:ps/task:1")

  harness.wait_until(lambda: age() is not None)
  job.mark_run(1, ended=True)
  harness.wait_until(lambda: age() > 2.5 * Timing().heartbeat_interval)
  assert probe.probe_task(job.ps[1], harness.LIMIT).is_up  # it lingers
  other.kill()


@pytest.mark.slow
def test_each_ps_is_released_by_its_own_record(job):
  servers = [job.serve(index=i, start_timeout=LONG) for i in range(2)]
  job.mark_run(1, ended=True)
  assert servers[1].wait() == 0
  assert servers[0].is_running
  job.mark_run(0, ended=True)
  assert servers[0].wait() == 0


def test_only_the_run_in_its_own_container_releases_it(job):
  ps = job.serve(container="jobs/a")
  for container in ("", "jobs", "jobs/b"):
    job.mark_run(container=container, ended=True)
  let_pass(0.6)  # two looks
  assert ps.is_running
  job.mark_run(container="jobs/a", ended=True)
  assert ps.wait() == 0


def test_it_tells_its_cluster_and_beats(job):
  job.serve(container="jobs/a")
  harness.wait_until(lambda: len(job.records()) == 3)
  records = job.records()
  assert records[control.CLUSTER_RECORD].value == {
      name: {"0": tasks[0], "1": tasks[1]} for name, tasks in job.jobs.items()}
  assert records[control.PROGRAM_RECORD].value == {"has_sessions": False}
  member, = heartbeat.members_of(records, "jobs/a")
  assert (member.name, member.role, member.state) == (PS_0, "ps", "serving")


@pytest.mark.slow
def test_without_a_worker_it_leaves_at_its_start_limit(job):
  ps, worker = job.serve(start_timeout=LONG), job.serve("worker", 1, start_timeout=LONG)
  clock_tasks.wait_until_it_sees(ps, "/job:worker/task:1 serving")
  clock_tasks.wait_until_it_sees(worker, PS_0 + " serving")
  # One that only serves has a limit too, and is none to wait for.
  assert clock_tasks.end_of(worker) == 1
  assert worker.last_line == "lost: no worker came within 600 s (--start_timeout)"
  assert ps.is_running
  assert clock_tasks.end_of(ps) == 1
  assert ps.last_line == "lost: no worker came within 600 s (--start_timeout)"


@pytest.mark.slow
def test_it_stays_while_a_worker_answers_that_is_not_tf1ps(job, start):
  worker = start("worker 1", cluster_tasks.serve, job.jobs, "worker", 1)
  harness.wait_until(lambda: probe.probe_task(Task("worker", 1, job.jobs["worker"][1])).is_up)
  ps = job.serve(start_timeout=1.0)
  ps.wait_for("/job:ps/task:0 stays while /job:worker/task:1 answers")
  worker.kill()  # nobody knows how it ended, and stock's ps would train on
  assert ps.wait() == 0
  assert ps.last_line == "ended: no worker and no client has been there for 1 s (--start_timeout)"


@pytest.mark.slow
@lists_connections
def test_all_stay_while_a_client_is_connected_that_is_no_task(job, start):
  limits = dict(start_timeout=LONG, client_works=1.0)  # an in-graph worker serves, too
  servers = [job.serve(index=i, **limits) for i in range(2)] + [job.serve("worker", 0, **limits)]
  client = start("client", server_tasks.use, "grpc://" + job.jobs["ps"][1], "/job:ps/task:1")
  client.wait_for("got 7")
  for ps in servers:
    clock_tasks.wait_until_it_sees(ps, "a client, served")
  for ps in servers:
    clock_tasks.end_patience(ps)
    ps.wait_for("stays while a client is connected")
  client.kill()
  for ps in servers:
    clock_tasks.wait_until_it_sees(ps, "served", without=["a client"])
  for ps in reversed(servers):  # the one with the heartbeats is the last
    assert clock_tasks.end_of(ps) == 0, ps.output
    assert ps.last_line == (
      "ended: no worker and no client has been there for 600 s (--start_timeout)")


def test_a_connection_is_a_clients_once_each_task_has_counted_again(monkeypatch):
  """Between two counts a connection of two tasks looks like a client's."""
  jobs = {"ps": harness.addresses(1), "worker": harness.addresses(1)}
  server = tf1ps.Server(jobs, "ps", 0, start_timeout=5.0)
  watch = ending._JobWatch(server.record, has_sessions=False)

  def look(seconds, connections):
    monkeypatch.setattr(ending, "count_connections", lambda *_: connections)
    return watch._await_first_worker(watch._began + seconds)

  try:
    assert look(4.9, 1) is look(5.1, 1) is None
    with pytest.raises(ending.JobLostError, match=r"no worker came within 5 s"):
      look(5.2, 0)
    assert look(5.3, 1) is look(5.4 + TIMING.heartbeat_interval, 1) is look(10.0, 0) is None
  finally:
    watch.close()


@pytest.mark.slow
@lists_connections
def test_a_client_outlives_the_task_with_the_heartbeats(job, start):
  limits = dict(heartbeat_timeout=LONG, client_works=0.5)
  servers = [job.serve(index=i, **limits) for i in range(2)]
  client = start("client", server_tasks.use, "grpc://" + job.jobs["ps"][1], "/job:ps/task:1")
  client.wait_for("got 7")
  for ps in servers:
    clock_tasks.wait_until_it_sees(ps, "a client, served")
  servers[0].kill()
  let_pass(0.3)  # its last answer has been read
  clock_tasks.begin_silence(servers[1])
  let_pass(1.0)
  assert servers[1].is_running
  client.kill()
  assert servers[1].wait() == 0, servers[1].output
  assert servers[1].last_line.startswith("ended: the last client has left, and %s, which" % PS_0)


@pytest.mark.slow
@lists_connections
def test_a_connection_of_a_worker_that_does_not_join_is_no_client(job, start):
  worker = start("worker 1", cluster_tasks.serve, job.jobs, "worker", 1)
  harness.wait_until(lambda: probe.probe_task(Task("worker", 1, job.jobs["worker"][1])).is_up)
  ps = job.serve(start_timeout=LONG, client_works=0.5)
  host, port = job.jobs["ps"][0].split(":")
  with socket.create_connection((host, int(port))):
    clock_tasks.wait_until_it_sees(ps, "a client")
    let_pass(2.0)
  clock_tasks.wait_until_it_sees(ps, without=["a client"])
  worker.kill()
  assert clock_tasks.end_of(ps) == 1
  assert ps.last_line == "lost: no worker came within 600 s (--start_timeout)"


@pytest.mark.slow
def test_it_leaves_when_all_workers_are_lost(job):
  ps = job.serve(heartbeat_timeout=LONG)
  workers = [job.worker(i, LONG) for i in range(2)]
  workers[1].set(global_step=7)
  clock_tasks.wait_until_it_sees(ps, *["/job:worker/task:%d starting at 0" % i for i in range(2)])
  clock_tasks.begin_silence(ps)
  for worker in workers:
    worker.set(step=1)
  clock_tasks.wait_until_it_sees(ps, *["/job:worker/task:%d starting at 1" % i for i in range(2)])
  clock_tasks.end_silence(ps)
  clock_tasks.end_patience(ps)
  let_pass(0.6)
  assert ps.is_running
  for worker in reversed(workers):  # the first one is silent before the second
    worker.stop()
    harness.wait_until(lambda: not worker._thread.is_alive())  # noqa: B023
    worker.set(step=2)
    worker.beat()  # its last one
    let_pass(0.3)
  clock_tasks.wait_until_it_sees(ps, *["/job:worker/task:%d starting at 2" % i for i in range(2)])
  clock_tasks.begin_silence(ps)
  clock_tasks.end_silence(ps)
  clock_tasks.wait_until_it_sees(
    ps, *["/job:worker/task:%d starting at 2 lost" % i for i in range(2)])
  assert ps.is_running  # they may return
  assert clock_tasks.end_of(ps) == 1
  said = ps.last_line.split("; ")
  assert said[0].startswith("lost: no worker is left: /job:worker/task:1 is lost: silent for ")
  assert said[0].endswith(" s, last seen at global step 7")
  assert said[1].startswith("/job:worker/task:0 is lost: silent for ") and said[1].endswith(" s")


def test_it_leaves_when_all_workers_have_ended_without_a_release(job):
  ps = job.serve(heartbeat_timeout=LONG)  # within which both report
  job.report(0, heartbeat.MEMBER_DONE)
  job.report(1, heartbeat.MEMBER_FAILED, "ValueError: no")
  clock_tasks.wait_until_it_sees(ps, "/job:worker/task:0 done", "/job:worker/task:1 failed")
  assert clock_tasks.end_of(ps) == 1
  assert ps.last_line == ("lost: no worker is left: /job:worker/task:1 failed: ValueError: no; "
                          "/job:worker/task:0 has done its part and left")


@pytest.mark.slow
def test_a_chief_that_failed_may_come_back(job):
  ps = job.serve(heartbeat_timeout=LONG)
  job.report(0, heartbeat.MEMBER_FAILED, "killed", role="chief")
  clock_tasks.wait_until_it_sees(ps, "/job:worker/task:0 failed")
  again = job.worker(0, LONG, role="chief")
  assert again.previous.state == heartbeat.MEMBER_FAILED
  clock_tasks.wait_until_it_sees(ps, "/job:worker/task:0 starting")
  clock_tasks.end_patience(ps)
  let_pass(0.6)  # two looks
  assert ps.is_running
  job.mark_run(ended=True)
  assert ps.wait() == 0


@pytest.mark.slow
def test_another_ps_leaves_when_the_one_with_the_heartbeats_dies(job):
  servers = [job.serve(index=i, heartbeat_timeout=LONG) for i in range(2)]
  job.report(0, heartbeat.MEMBER_STARTING)
  clock_tasks.wait_until_it_sees(servers[1], PS_0, "/job:ps/task:1", "/job:worker/task:0 starting")
  servers[0].kill()
  let_pass(0.6)
  assert servers[1].is_running
  clock_tasks.begin_silence(servers[1])
  assert servers[1].wait() == 1
  assert re.match(
      r"lost: %s, which keeps the heartbeats, has not answered for 6\d\d s: refused \(nothing "
      r"listens on that port\)$" % PS_0, servers[1].last_line)


def test_another_ps_waits_for_the_one_with_the_heartbeats(job):
  second = job.serve(index=1, heartbeat_timeout=0.5, start_timeout=LONG)
  let_pass(0.6)
  assert second.is_running
  assert clock_tasks.end_of(second) == 1
  assert re.match(r"lost: %s, which keeps the heartbeats, has not answered for \d{3,} s: refused"
                  % PS_0, second.last_line)


def test_a_standing_ps_stays_whatever_comes(job):
  ps = job.serve(persistent=True, heartbeat_timeout=0.5, start_timeout=0.5)
  job.mark_run(ended=True)
  job.mark_run(container="jobs/a", ended=True, failed=True)
  job.report(0, heartbeat.MEMBER_FAILED, "x")
  let_pass(1.5)
  assert ps.is_running
  assert control.CLUSTER_RECORD in job.records()
  ps.signal(signal.SIGTERM)
  assert ps.wait() == 0


@pytest.mark.slow
def test_a_worker_that_serves_ends_with_its_job_not_with_one_before(job):
  job.serve(persistent=True)
  job.mark_run(ended=True, failed=True)
  job.report(0, heartbeat.MEMBER_FAILED, "of an earlier job")
  harness.wait_until(lambda: heartbeat.members_of(job.records(), "")[-1].age > 0.3)
  # A busy ps 0 has more time to answer.
  worker = job.serve("worker", 1, heartbeat_timeout=1.5, recovery_timeout=harness.LIMIT)
  let_pass(2.5)
  assert worker.is_running
  job.mark_run(id="s")
  job.mark_run(id="s", ended=True)
  assert worker.wait() == 0
  assert worker.last_line == "ended: the chief released this task: the job has ended"
