from __future__ import annotations

import json
import re
import signal
import urllib.error
import urllib.request

import pytest

from tests import harness, program_tasks
from tests.cli import commands
from tests.conftest import TIMING
from tests.monitoring import sample_status, terminal_tasks
from tests.training import local_server
from tf1ps.cluster import connections
from tf1ps.monitoring import job_status, status, status_text
from tf1ps.state import peek, run

ENDLESS = [commands.LINE, "--steps=1000000", "--step_seconds=0.01", "--heartbeat_timeout=5"]


def job_of(found):
  job, = status.make_status(sample_status.seen(found)).jobs
  return job


def test_each_task_of_a_job():
  job, = sample_status.make().jobs
  assert (job.container, job.run, job.state, job.global_step) == (
    "digits-1db7", "r1", "running", 1234)
  assert [(one.task, one.role, one.state) for one in job.tasks] == [
    ("ps 0", "ps", "serving"), ("ps 1", "ps", "serving"), ("worker 0", "chief", "training"),
    ("worker 1", "worker", "lost"), ("worker 2", "worker", "stalled"),
    ("worker 3", "worker", "absent")]
  chief, lost, other, absent = job.tasks[2:]
  assert (chief.host, chief.global_step, chief.steps, chief.loss) == ("node3", 1234, 610, 0.2514)
  assert (chief.gradient_age_mean, chief.gradient_age_highest) == (0.9, 3)
  assert (lost.last_seen, lost.steps_per_second, lost.global_step) == (47.25, None, 401)
  assert lost.reason == ("is lost: no heartbeat for 47 s. See whether process 4001 runs on node4, "
                         "and its log; start the task again if it has ended")
  assert (other.recoveries, other.steps_per_second, other.stalled, other.reason) == (
    1, None, 42.0, "has made no step for 42 s, and none of its last steps took longer than 0.2 s. "
    "Look for a lost task or an empty queue")
  assert (absent.last_seen, absent.reason) == (None, "has sent no heartbeat from 10.0.0.6:2222")


def test_the_load_of_a_ps_is_the_chiefs_step_times_the_steps_of_the_living():
  job, = sample_status.make().jobs
  assert (job.steps_per_second, job.examples_per_second) == (41.0, 1312.0)
  assert job.ps[0] == status.PsStatus(
    "ps 0", "10.0.0.1:2222", "", 41 * 60000.0, 41 * 60400.0, 41 * 9.0)
  assert job.ps[1].problem == "refused (nothing listens on that port)"


def test_the_queues_of_the_job_and_the_last_checkpoint():
  job, = sample_status.make().jobs
  assert job.queues == [
    status.QueueStatus("batches", "FIFOQueue", "ps 0", 0, 100, ["worker 2: get(32), 42.6 s"]),
    status.QueueStatus("results", "FIFOQueue", "ps 0", 7, None, [])]
  assert job.checkpoint == status.CheckpointStatus("/jobs/digits", 1200, 31.0)


@pytest.mark.parametrize("change, state", [
  (dict(initialised=False), "starting"), (dict(ended=True), "ended"),
  (dict(ended=True, failed=True), "failed")])
def test_the_state_of_the_run(change, state):
  found = sample_status.records()
  record = found["run:digits-1db7"]
  found["run:digits-1db7"] = record._replace(value=dict(record.value, **change))
  assert job_of(found).state == state


@pytest.mark.parametrize("fields, age, state", [
  ({}, 4.0, "training"), ({}, 6.0, "silent"), ({}, 31.0, "lost"),
  ({"timeout": 90.0}, 31.0, "silent"),
  ({"timeout": 2.0}, 3.0, "lost"), ({"state": "done"}, 500.0, "done"),
  ({"state": "failed", "reason": "NanLossError"}, 500.0, "failed")])
def test_a_silent_task_is_lost_after_the_timeout_of_its_job(fields, age, state):
  found = sample_status.records()
  found.update([sample_status.member("worker", 2, age, **fields)])
  task = job_of(found).tasks[4]
  assert task.state == state
  if state == "failed":
    assert task.reason == "is failed: NanLossError"
  else:
    assert bool(task.reason) == (state in ("lost", "silent")) and task.reason.startswith(
      "is %s: no heartbeat for %.0f s. " % (state, age) if task.reason else "")


def test_a_worker_that_waits_is_stalled():
  found = sample_status.records()
  found.update([sample_status.member("worker", 2, blocked="the queue batches")])
  task = job_of(found).tasks[4]
  assert (task.state, task.reason) == ("stalled", "waits for the queue batches")


def test_what_is_not_known_is_said_in_words():
  found = sample_status.records()
  for name in list(found):
    if name.startswith("member:digits"):
      del found[name]
  text = status_text.format_status(status.make_status(
    sample_status.seen(found)._replace(queues={}, problems={})))
  assert "load: not known, because the chief has not measured its step" in text
  assert "queues: none of tf1ps on the ps" in text
  assert "checkpoints: not known: the chief has sent no heartbeat" in text
  found.update([sample_status.member("worker", 0, role="chief")])
  assert "checkpoints: none is known: the chief has no --checkpoint_dir" in (
    status_text.format_status(status.make_status(sample_status.seen(found))))
  found.update([sample_status.member(
    "worker", 0, role="chief", figures={"checkpoint": ["/c", -1, 0.0]})])
  assert "checkpoints: none yet in /c" in (
    status_text.format_status(status.make_status(sample_status.seen(found))))


def test_two_jobs_that_share_the_ps():
  found = sample_status.records()
  found.update([sample_status.member("worker", 3, container="other", role="chief", global_step=5)])
  first, second = status.make_status(sample_status.seen(found)).jobs
  assert [one.task for one in first.tasks] == ["ps 0", "ps 1", "worker 0", "worker 1", "worker 2"]
  assert [one.task for one in second.tasks] == ["ps 0", "ps 1", "worker 3"]
  assert (second.container, second.global_step, second.state) == ("other", 5, "running")


def test_the_text():
  lines = status_text.format_status(sample_status.make()).splitlines()
  assert re.match(r"asked ps 0 at 10.0.0.1:2222 at \d\d:\d\d:\d\d$", lines[0])
  assert lines[2] == ("the job is running, global step 1234, 41.0 steps/s and 1312 examples/s of "
                      "all workers (run r1 in container digits-1db7)")
  assert lines[4:11] == [
    "TASK              HOST   STATE     STEP  LOSS    STEPS/S  EXAMPLES/S  AGE OF GRADIENTS  "
    "LAST SEEN",
    "ps 0              node1  serving   -     -       -        -           -                 0.4 s",
    "ps 1              node2  serving   -     -       -        -           -                 0.7 s",
    "worker 0 (chief)  node3  training  1234  0.2514  41.0     1312        0.9 (3 at most)   0.2 s",
    "worker 1          node4  lost      401   -       -        -           -                 "
    "47.2 s",
    "worker 2          node5  stalled   1230  0.3100  -        -           1.1 (4 at most)   0.6 s",
    "worker 3          -      absent    -     -       -        -           -                 never"]
  assert lines[11:13] == ["", "worker 1 " + job_of(sample_status.records()).tasks[3].reason]
  assert lines[14:] == [
    "worker 3 has sent no heartbeat from 10.0.0.6:2222", "",
    "PS    SENT/S   RECEIVED/S  MESSAGES/S",
    "ps 0  2.46 MB  2.48 MB     369",
    "ps 1  1.68 MB  1.68 MB     369", "",
    "ps 1 at 10.0.0.2:2222 does not answer: refused (nothing listens on that port)", "",
    "QUEUE    PS    SIZE  CAPACITY  WAITING",
    "batches  ps 0  0     100       worker 2: get(32), 42.6 s",
    "results  ps 0  7     no limit  nobody", "",
    "checkpoints: the last at step 1200, 31.0 s ago, in /jobs/digits"]


def test_json_has_all_of_it():
  job, = json.loads(job_status.status_as_json(sample_status.make()))["jobs"]
  assert job["tasks"][3]["state"] == "lost" and job["tasks"][3]["last_seen"] == 47.25
  assert job["tasks"][3]["steps_per_second"] is None
  assert job["checkpoint"] == {"directory": "/jobs/digits", "global_step": 1200, "age": 31.0}
  assert job["queues"][0]["waiting"] == ["worker 2: get(32), 42.6 s"]
  assert job_status.status_from_json(job_status.status_as_json(sample_status.make())) == (
    sample_status.make())


def test_a_job_without_ps_keeps_its_records_on_the_chief():
  of = local_server.record("status")
  table = local_server.table(of)
  run.write_run(table, "status", run.RunRecord(
    id="r", initialised=True, ended=False, failed=False, jobs=of.cluster.to_json(), signature=[],
    writes=1))
  table.close()
  local_server.Worker(of, 1).say(run="r", state="training", step=5, global_step=9)
  found = status.ask_status([of.cluster.task.address], harness.LIMIT)
  job, = [one for one in found.jobs if one.container == "status"]
  worker, = [one for one in job.tasks if one.task == "worker 1"]
  assert (worker.state, worker.steps, worker.global_step) == ("training", 5, 9)
  assert (job.run, job.state, job.ps, job.queues) == ("r", "running", [], [])
  assert "load: the job has no ps" in status_text.format_status(found._replace(jobs=[job]))


def test_no_ps_is_an_error_within_the_limit(monkeypatch):
  look = status._look  # a single look has its time, on a busy machine
  monkeypatch.setattr(status, "_look", lambda address, limit: look(address, harness.LIMIT))
  addresses = harness.addresses(2)
  with pytest.raises(status.StatusError, match=r"%s: refused.*; %s: refused" % tuple(addresses)):
    status.ask_status(addresses, 0.5)


def test_a_server_that_keeps_no_records(ps):
  with pytest.raises(status.StatusError, match="ps 0 at .* keeps no records of a job of tf1ps"):
    status._cluster_in({}, ps)


def test_a_look_leaves_no_connection(ps):
  def count():
    own, port = connections._sockets(), int(ps.address.rsplit(":", 1)[1])
    return sum(one.to == port and one.inode in own for one in connections._connections())

  before = count()
  with peek.Peek(ps, harness.LIMIT) as made:
    made.records()
    assert count() > before
  harness.wait_until(lambda: count() == before, what="the end of the connection")


def run_status(start, address, *argv):
  return commands.run(start, "tf1ps-status", "--ps_hosts=" + address, "--log_format=json", *argv)


def begin(start, folder, *argv):
  """Starts a job of 2 ps and 2 workers; returns the addresses of the ps, and the workers."""
  ps, workers = harness.addresses(2), harness.addresses(2)
  hosts = ["--ps_hosts=" + ",".join(ps), "--worker_hosts=" + ",".join(workers)]
  for index in range(2):
    start("ps", program_tasks.run_program, "tf1ps-ps", [*hosts, "--task_index=%d" % index], folder)
  return ps, [start("worker", program_tasks.run_program, "tf1ps-worker",
                    [*hosts, "--task_index=%d" % index, *argv], folder) for index in range(2)]


@pytest.mark.slow
def test_a_running_job_with_a_killed_worker(start, tmp_path):
  (_, address), workers = begin(start, tmp_path, *ENDLESS, "--checkpoint_dir=c")
  workers[0].wait_for("progress: step")

  def ask(is_seen, what):
    def once():
      job, = json.loads(run_status(start, address)[1][-1])["jobs"]
      return job if is_seen(job) else None

    return harness.wait_until(once, what=what)

  job = ask(lambda job: all(one["steps_per_second"] for one in job["tasks"][2:]) and (
    job["checkpoint"]), "a job that trains")
  assert [(one["task"], one["role"], one["state"]) for one in job["tasks"]] == [
    ("ps 0", "ps", "serving"), ("ps 1", "ps", "serving"), ("worker 0", "chief", "training"),
    ("worker 1", "worker", "training")]
  assert job["state"] == "running" and job["global_step"] > 0
  assert sum(one["messages_per_second"] for one in job["ps"]) > 0
  assert job["checkpoint"]["directory"] == "c"
  workers[1].kill()
  lost = ask(lambda job: job["tasks"][3]["state"] == "lost", "a lost worker")["tasks"][3]
  assert lost["last_seen"] > 5.0 and lost["steps_per_second"] is None
  workers[0].wait_for("/job:worker/task:1 is lost: silent for ")
  code, lines = commands.run(start, "tf1ps-status", "--ps_hosts=" + address)
  assert code == 0 and [line for line in lines if re.match(r"worker 1 .* lost .* \d+\.\d s$", line)]
  top = start("top", terminal_tasks.run_on_terminal, "tf1ps-top", ["--ps_hosts=" + address])
  harness.wait_until(lambda: "lost" in top.output and "worker 0 (chief)" in top.output,
                     what=lambda: "tf1ps-top's table:\n" + top.output)
  top.signal(signal.SIGINT)
  assert top.wait() == 0, top.output
  assert workers[0].is_running


@pytest.mark.slow
def test_a_job_whose_step_never_returns_is_stalled_and_not_ready(start, tmp_path):
  pytest.importorskip("prometheus_client")
  (ps, address, metrics) = harness.addresses(3)
  hosts = ["--ps_hosts=" + ps, "--worker_hosts=" + address]
  start("ps", program_tasks.run_program, "tf1ps-ps", hosts, tmp_path)
  worker = start("worker", program_tasks.run_program, "tf1ps-worker", [
    *hosts, "--task_index=0", "--program=" + str(commands.ROOT / "tests/programs/blocked.py"),
    "--steps=1000", "--batch_size=1", "--metrics_port=" + metrics], tmp_path,
    TF1PS_TIMING=json.dumps({**TIMING, "stalled_least": 1.0}))
  worker.wait_for("saved ")

  def ask():
    job, = json.loads(run_status(start, ps)[1][-1])["jobs"]
    task = job["tasks"][1]  # an earlier step may stall on a busy machine
    return task if task["state"] == "stalled" and task["steps"] == 100 else None

  task = harness.wait_until(ask, what="a stalled worker")
  assert task["steps_per_second"] is None
  assert re.match(r"has made no step for \d+ s, and none of its last steps took longer than ",
                  task["reason"])
  with pytest.raises(urllib.error.HTTPError) as caught:
    urllib.request.urlopen("http://%s/readyz" % metrics, timeout=harness.LIMIT)
  assert caught.value.code == 503 and re.match(
    r"stalled: its step has lasted \d+ s, and none of the last steps took longer than ",
    caught.value.read().decode())


@pytest.mark.parametrize("argv, text", [
  (["--ps_hosts=localhost"], '--ps_hosts: "localhost" has no port: write host:port'),
  (["a", "b:2"],
   "'b:2' is one argument too many: give either --ps_hosts or one checkpoint directory"),
  (["--ps_hosts=a:1", "b:2"],
   "'b:2' is one argument too many: give either --ps_hosts or one checkpoint directory")])
def test_the_command_line(start, argv, text):
  code, lines = commands.run(start, "tf1ps-status", *argv)
  assert (code, len(lines)) == (1, 1) and lines[0].startswith("tf1ps-status: " + text)
